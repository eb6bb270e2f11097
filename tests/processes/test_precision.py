"""What was measured in full precision is not taken for true in less."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.processes.starting import reduced_precision
from tests.made_configs import config

BYPASS = "algorithm.rollout_correction.bypass_mode"
MIXED = "actor_rollout_ref.actor.fsdp_config.mixed_precision"


@pytest.mark.parametrize(
    ("hardware", "overrides", "expected"),
    [
        ("cpu", [], None),
        ("gpu", [], "bfloat16"),
        ("cpu", ["actor_rollout_ref.rollout.dtype=bfloat16"], "bfloat16"),
        ("cpu", [f"{MIXED}.param_dtype=bf16"], "bf16"),
        ("cpu", [f"{MIXED}=null"], "bf16"),
        ("gpu", ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"], None),
    ],
)
def test_either_of_engine_and_trainer_may_compute_in_less(
    tmp_path: Path, hardware: str, overrides: list[str], expected: str | None
) -> None:
    assert reduced_precision(config(tmp_path, *overrides, hardware=hardware)) == expected


FULL = ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"]


@pytest.mark.parametrize(
    ("hardware", "overrides", "followed"),
    [
        ("cpu", [f"{BYPASS}=auto"], True),
        ("cpu", [f"{BYPASS}=auto", "actor_rollout_ref.rollout.dtype=bfloat16"], False),
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
