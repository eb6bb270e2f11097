"""Whose log-probabilities are trained with follows from the precision, where it is auto."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.made_configs import config

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
