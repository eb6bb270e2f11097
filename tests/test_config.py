"""Hydra refuses other types and names, also in a preset, and what follows from a setting follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from recipe.spiral.checks import check
from tests.made_configs import CONFIG, config

ROLLOUT = "actor_rollout_ref.rollout"


def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(CONFIG), version_base=None):
        return compose("spiral_trainer", overrides=["hardware=cpu", *overrides])


@pytest.mark.parametrize(
    "override",
    ["fsp.siez=3", "fsp.size=abc", "fsp.sample=best", "games=Nim", "trainer.test_freqq=5", "seed=null", "typo=1"],
)
def test_a_command_line(override: str) -> None:
    with pytest.raises(HydraException, match=override.partition("=")[0]):
        composed(override)


@pytest.mark.parametrize(
    "text",
    [
        "fsp:\n  siez: 3",
        "fps:\n  enabled: true",
        "data:\n  batch: 3",
        "rules:\n  truncated: no",
        "guard:\n  acton: stop",
    ],
)
def test_a_preset(tmp_path: Path, text: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    folders = ",".join([*OmegaConf.load(CONFIG / "spiral_trainer.yaml").hydra.searchpath, f"file://{tmp_path}"])
    with pytest.raises(HydraException, match="mine"):
        composed(f"hydra.searchpath=[{folders}]", "+experiment=mine")


@pytest.mark.parametrize(
    "override", ["fsp.ratio=1.5", "algorithm.rae.decay=-1", "ref_update_rate=0", "guard.invalid=2"]
)
def test_a_number_out_of_its_range(tmp_path: Path, override: str) -> None:
    with pytest.raises(ValueError, match=f"^{override.partition('=')[0]}="):
        check(config(tmp_path, override))


@pytest.mark.parametrize(
    ("overrides", "setting", "value"),
    [
        ("", f"{ROLLOUT}.max_model_len", 512),
        ("model=hf", f"{ROLLOUT}.max_model_len", 6144),
        ("", "algorithm.rollout_correction.rollout_is", None),
        ("trainer.v1.trainer_mode=colocate_async", "algorithm.rollout_correction.rollout_is", "token"),
        ("trainer.v1.trainer_mode=separate_async", f"{ROLLOUT}.checkpoint_engine.backend", "file"),
        ("trainer.v1.trainer_mode=separate_async", "ray_kwargs.ray_init.num_gpus", 2),
        ("asynchronous.max_staleness=2", "trainer.v1.sampler.max_off_policy_threshold", 3),
        ("batch_unit=turns", "data.gen_batch_size", 1),
        ("seed=7", "data.run_seed", 7),
        (f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend", "mp"),
        ("trainer.project_name=42", "trainer.project_name", "42"),
    ],
)
def test_what_follows(tmp_path: Path, overrides: str, setting: str, value: Any) -> None:
    given = overrides.split()
    model = "hf" if "model=hf" in given else "tiny"
    made = config(tmp_path, *(each for each in given if each != "model=hf"), model=model)
    assert OmegaConf.select(made, setting) == value


def test_modules_of_the_users_come_after_ours(tmp_path: Path) -> None:
    libraries = config(tmp_path, "actor_rollout_ref.model.external_lib=json").actor_rollout_ref.model.external_lib
    assert libraries == ["recipe.spiral.workers.engine", "json"]


BYPASS = "algorithm.rollout_correction.bypass_mode"
MIXED = "actor_rollout_ref.actor.fsdp_config.mixed_precision"


FULL = ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"]


@pytest.mark.parametrize(
    ("hardware", "overrides", "followed"),
    [
        ("cpu", [f"{BYPASS}=auto"], True),
        ("cpu", [f"{BYPASS}=auto", "actor_rollout_ref.rollout.dtype=bfloat16"], False),
        ("cpu", [f"{BYPASS}=auto", f"{MIXED}.param_dtype=bf16"], False),
        ("gpu", [f"{BYPASS}=auto"], False),
        ("gpu", [f"{BYPASS}=auto", *FULL], False),  # TF32
        ("gpu", [f"{BYPASS}=true"], True),
        ("gpu", ["loss=dpo"], True),
        ("gpu", ["+experiment=quickstart"], False),
    ],
)
def test_the_engines_log_probabilities_are_trained_with_where_they_are_the_trainers_or_as_the_user_says(
    tmp_path: Path, hardware: str, overrides: list[str], followed: bool
) -> None:
    groups = [override for override in overrides if override in ("loss=dpo", "+experiment=quickstart")]
    others = [override for override in overrides if override not in groups]
    mode = "trainer.v1.trainer_mode=colocate_async"
    correction = config(tmp_path, *others, mode, hardware=hardware, groups=groups).algorithm.rollout_correction
    assert correction.bypass_mode is followed
    assert correction.rollout_is == (None if followed else "token")
