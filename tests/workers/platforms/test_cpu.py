"""The CPU as one of verl's platforms, and whether each patch of other packages is still needed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch
from verl.plugin.platform import PlatformBase

from recipe.spiral.workers.platforms import cpu_patches
from recipe.spiral.workers.platforms.cpu import PlatformCPU

has_vllm_cpu = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")


def source(package: str, file: str) -> str:
    """A file of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / file).read_text(encoding="utf-8")


# -- the platform ------------------------------------------------------------------------------------------------------


def test_it_has_all_that_a_platform_needs() -> None:
    abstract = {name for name, member in inspect.getmembers(PlatformBase) if getattr(member, "__isabstractmethod__", 0)}
    assert abstract <= set(dir(PlatformCPU)), "verl's platforms have a method that PlatformCPU lacks"
    assert not inspect.isabstract(PlatformCPU)
    platform = PlatformCPU()
    assert (platform.device_name, platform.vendor_name, platform.communication_backend_name()) == ("cpu", "cpu", "gloo")
    assert (platform.ray_resource_name(), platform.device_count()) == ("GPU", 1)
    assert platform.is_available()
    assert not platform.is_ipc_supported()
    with platform.nvtx_range("nothing"):
        platform.set_device(0)
        platform.synchronize()
        platform.empty_cache()


def test_the_current_device_serves_both_of_verls_uses() -> None:
    """verl moves tensors ``.to(x)`` it and writes it into ``f"cpu:{x}"``."""
    device = PlatformCPU().current_device()
    assert torch.ones(2).to(device).device == torch.device("cpu")
    assert torch.zeros(1, device=device).device.type == "cpu"
    assert torch.device(f"cpu:{device}") == torch.device("cpu:0")


def test_the_engines_are_verls_own() -> None:
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

    for kind, base in (("language_model", FSDPEngineWithLMHead), ("value_model", FSDPEngineWithValueHead)):
        assert issubclass(EngineRegistry._engines[kind]["fsdp2"]["cpu"], base)
    assert list(inspect.signature(FSDPEngineWithLMHead._build_fsdp_module).parameters) == ["self", "module"]
    body = inspect.getsource(FSDPEngineWithLMHead._build_fsdp_module)
    assert "CPUOffloadPolicy" in body and "forward_only" in body, "verl offloads otherwise: InPlace can go"


# -- the patches -------------------------------------------------------------------------------------------------------


def test_one_gloo_is_still_to_be_asked_for() -> None:
    """Fails when ``single_gloo`` can go."""
    text = source("verl", "utils/distributed.py")
    assert 'backend or f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}"' in text, "verl asks for other backends now"
    backends = torch.distributed.Backend("cpu:gloo,cpu:gloo")
    with pytest.raises(ValueError, match="Duplicate device type"):
        torch.distributed.distributed_c10d.BackendConfig(backends)


def test_verl_still_loads_a_critic_with_flash_attention() -> None:
    """Fails when ``value_head_without_flash`` can go, or would no longer reach the call."""
    text = source("verl", "utils/model.py")
    assert "def load_valuehead_model(local_path, torch_dtype, model_config, trust_remote_code):" in text
    assert 'attn_implementation="flash_attention_2"' in text
    assert "from verl.utils.model import load_valuehead_model" in source(
        "verl", "workers/engine/fsdp/transformer_impl.py"
    ), "it is looked up when it is called"


@has_vllm_cpu
def test_vllm_still_drops_the_weights_that_it_packs() -> None:
    """Fails when ``keep_weights`` can go, or would no longer reach the call."""
    linear = source("vllm", "model_executor/layers/linear.py")
    assert re.search(
        r"from vllm\.model_executor\.layers\.utils import dispatch_cpu_unquantized_gemm\n\s+"
        r"dispatch_cpu_unquantized_gemm\(layer, remove_weight=True\)",
        linear,
    ), "vLLM packs weights in another way now"
    utils = source("vllm", "model_executor/layers/utils.py")
    assert re.search(r"def dispatch_cpu_unquantized_gemm\(\s*layer: \S+,\s*remove_weight: bool,?\s*\)", utils)
    assert re.search(r"if remove_weight:\s+layer\.weight = ", utils), "vLLM no longer drops them"


@has_vllm_cpu
def test_tokens_without_an_adapter_get_none() -> None:
    vllm = importlib.util.find_spec("vllm")
    assert vllm is not None and vllm.origin is not None
    file = Path(vllm.origin).parent / "lora/ops/torch_ops/lora_ops.py"
    spec = importlib.util.spec_from_file_location("lora_ops_alone", file)
    assert spec is not None and spec.loader is not None
    ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ops)
    cpu_patches.no_adapter_is_none(ops)

    torch.manual_seed(0)
    tokens, adapters, width, rank = 5, 3, 4, 2
    a, b = torch.randn(adapters, 1, rank, width), torch.randn(adapters, 1, width, rank)
    x, indices = torch.randn(tokens, width), torch.tensor([0, -1, 2, -1, 1])
    small, y, sliced = torch.full((tokens, rank), 9.0), torch.ones(tokens, width), torch.ones(tokens, width + 1)
    ops.bgmv_shrink(x, a, small, indices, 0.5)
    ops.bgmv_expand(small, b, y, indices, add_inputs=True)
    ops.bgmv_expand_slice(small, b, sliced, indices, 1, width, add_inputs=True)
    for i, adapter in enumerate(indices.tolist()):
        delta = torch.zeros(width) if adapter < 0 else 0.5 * b[adapter, 0] @ (a[adapter, 0] @ x[i])
        torch.testing.assert_close(y[i], 1 + delta)
        torch.testing.assert_close(sliced[i, 1:], 1 + delta)

    y = torch.ones(tokens, width)
    of_sequences = (torch.tensor([0, 2]), torch.tensor([2, 3]), torch.tensor([-1, 1]), 2, 3, tokens)
    ops.sgmv_shrink(x, a, small, *of_sequences, 0.5)
    ops.sgmv_expand(small, b, y, *of_sequences, True)
    assert torch.equal(y[:2], torch.ones(2, width)) and not torch.isclose(y[2:], torch.ones(3, width)).all()
