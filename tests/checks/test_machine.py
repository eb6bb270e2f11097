"""What a machine with GPUs must have: flash-attn is used where it is, and only what needs it is refused without it."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from verl.utils.config import omega_conf_to_dataclass

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.checks import machine as machine_checks
from recipe.spiral.processes.attention import PACKED, detect_attention
from tests.made_configs import composed, config, with_vllm_and_gpus

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
CRITIC = "algorithm.adv_estimator=gae"
#: The fixture below takes its place.
CUDA_ERROR = machine_checks._cuda_error


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)


def with_flash_attn(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """It is installed, and loads unless there is an error."""
    find, load = importlib.util.find_spec, importlib.import_module

    def import_module(name: str, *args: Any) -> ModuleType:
        if name == "flash_attn" and error is not None:
            raise error
        return load("json" if name == "flash_attn" else name, *args)

    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *args: find("json" if name == "flash_attn" else name, *args)
    )
    monkeypatch.setattr(importlib, "import_module", import_module)
    composed.cache_clear()
    monkeypatch.setattr("tests.made_configs.composed", composed.__wrapped__)


def test_a_driver_that_torch_cannot_use_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch counts GPUs by the driver's own library, which an old driver has, too."""

    def available() -> bool:
        warnings.warn("CUDA initialization: The NVIDIA driver is too old (found 12040). Please update", stacklevel=1)
        return False

    monkeypatch.setattr(machine_checks, "_cuda_error", CUDA_ERROR)
    monkeypatch.setattr("torch.cuda.is_available", available)
    with pytest.raises(ConfigError, match=r"counts 8 GPUs here, and cannot .* is too old \(found 12040\); run"):
        check(config(tmp_path, hardware="gpu"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    check(config(tmp_path, hardware="gpu"))


def test_a_slice_of_a_card_trains_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"n_gpus_per_node=2: with CUDA_VISIBLE_DEVICES=MIG-1,MIG-2 .* take .*=1"):
        check(config(tmp_path, "trainer.n_gpus_per_node=2", hardware="gpu"))
    check(config(tmp_path, "trainer.n_gpus_per_node=1", hardware="gpu"))
    with pytest.raises(ConfigError, match=r"this machine has 2 with CUDA_VISIBLE_DEVICES=MIG-1,MIG-2; take"):
        check(config(tmp_path, "trainer.n_gpus_per_node=8", hardware="gpu"))


def test_attention_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert detect_attention() == PACKED
    assert config(tmp_path, hardware="gpu").actor_rollout_ref.model.override_config.attn_implementation == PACKED
    with_flash_attn(monkeypatch)
    setup = config(tmp_path, hardware="gpu")
    assert setup.actor_rollout_ref.model.override_config.attn_implementation == "flash_attention_2"
    assert setup.actor_rollout_ref.model.use_remove_padding
    check(setup)
    cpu = config(tmp_path).actor_rollout_ref.model
    assert (cpu.override_config.attn_implementation, cpu.use_remove_padding) == (PACKED, True), "of a CPU"


@pytest.mark.parametrize("part", ["actor_rollout_ref", "critic"])
def test_attention_of_packed_rows_needs_packed_rows(tmp_path: Path, part: str) -> None:
    """Also where a run is only planned."""
    padded = ["algorithm.adv_estimator=gae", f"{part}.model.use_remove_padding=false"]
    with pytest.raises(ConfigError, match=rf"{part}.model.override_config.attn_implementation=spiral_packed: .* sdpa"):
        check(config(tmp_path, *padded), here=False)
    check(config(tmp_path, *padded, f"{part}.model.override_config.attn_implementation=sdpa"))


@pytest.mark.parametrize(
    ("hardware", "model", "overrides", "expected"),
    [
        ("gpu", "hf", [], 16384),
        ("gpu", "hf", ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20000"], 20000),
        ("gpu", "tiny", [], 32768),
        ("gpu", "smollm2_135m", [], 4096),
        ("cpu", "tiny", [], 32768),
    ],
)
def test_all_that_goes_through_a_model_has_the_same_micro_batches(
    tmp_path: Path, hardware: str, model: str, overrides: list[str], expected: int
) -> None:
    setup = config(tmp_path, *overrides, hardware=hardware, model=model)
    actor = setup.actor_rollout_ref.actor
    assert actor.ppo_max_token_len_per_gpu == setup.critic.ppo_max_token_len_per_gpu == expected
    assert setup.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu == expected
    setup.critic.model = None  # it need not be there; what verl's V1 trainer gives to the engine:
    assert omega_conf_to_dataclass(setup.critic).ppo_infer_max_token_len_per_gpu == expected


def test_flash_attn_that_is_asked_for_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config(tmp_path, f"{ATTENTION}=flash_attention_2", hardware="gpu")
    with pytest.raises(ConfigError, match=r"attn_implementation=flash_attention_2: flash-attn is not installed; take"):
        check(asked)
    with_flash_attn(monkeypatch, OSError("undefined symbol: _ZN3c10\nat line 1"))
    with pytest.raises(ConfigError, match=r"cannot be loaded \(undefined symbol: _ZN3c10\); take spiral_packed"):
        check(asked)


def test_a_critic_needs_flash_attn_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"adv_estimator=gae: verl loads a critic with flash-attn, and flash-attn is"):
        check(config(tmp_path, CRITIC, hardware="gpu"))
    check(config(tmp_path, CRITIC, hardware="cpu"))
    with_flash_attn(monkeypatch)
    check(config(tmp_path, CRITIC, hardware="gpu"))


@pytest.mark.parametrize("part", ["actor", "actor.fsdp_config"])
def test_sequences_are_shared_by_gpus_with_flash_attn_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    shared = f"actor_rollout_ref.{part}.ulysses_sequence_parallel_size=2"
    with pytest.raises(ConfigError, match=r"ulysses_sequence_parallel_size=2: .* would not see each other; take 1, or"):
        check(config(tmp_path, shared, hardware="gpu"))
    with_flash_attn(monkeypatch)
    check(config(tmp_path, shared, hardware="gpu"))


@pytest.mark.parametrize("part", ["actor", "actor.fsdp_config"])
def test_a_critic_shares_sequences_as_the_policy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with_flash_attn(monkeypatch)
    shared = f"actor_rollout_ref.{part}.ulysses_sequence_parallel_size=2"
    with pytest.raises(ConfigError, match=r"^critic\.fsdp\.ulysses_\w+=1: .* actor_rollout_ref\.actor\.ulysses.* 2$"):
        check(config(tmp_path, shared, CRITIC, hardware="gpu"))
    check(config(tmp_path, shared, CRITIC, "critic.fsdp.ulysses_sequence_parallel_size=2", hardware="gpu"))


@pytest.mark.parametrize("setting", ["run_dir", "trainer.default_local_dir"])
def test_where_a_run_writes_must_be_writable(tmp_path: Path, setting: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=rf"^{setting}=.*/file/run: .*/file is no folder; give another folder$"):
        check(config(tmp_path, f"{setting}={tmp_path / 'file' / 'run'}"))


def test_the_place_of_games_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "games").write_text("")
    with pytest.raises(ConfigError, match=r"^run_dir=.*/run: .*/run/games is no folder; give another folder$"):
        check(config(tmp_path))


def test_past_selves_need_a_path_that_vllm_takes_for_no_pattern(tmp_path: Path) -> None:
    alone, pool = config(tmp_path), config(tmp_path, "fsp.enabled=true")
    for made in (alone, pool):
        made.run_dir = str(tmp_path / "runs [a]" / "run")
    check(alone)
    with pytest.raises(ConfigError, match=r"^run_dir=.*/runs \[a\]/run: vLLM takes \[ in a path for a pattern"):
        check(pool)


def test_ray_needs_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = config(tmp_path)
    monkeypatch.setattr(machine_checks.resource, "getrlimit", lambda kind: (64, 1024))
    machine_checks._open_files(setup)
    monkeypatch.setattr(machine_checks.resource, "getrlimit", lambda kind: (64, 64))
    with pytest.raises(ConfigError, match="ulimit -n: a process may have 64 files open here, and Ray's need 1024"):
        machine_checks._open_files(setup)
