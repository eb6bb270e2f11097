"""What was measured in full precision is not taken for true in less."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.processes.starting import follow_precision, reduced_precision
from tests.made_configs import config

BYPASS = "algorithm.rollout_correction.bypass_mode=true"
MIXED = "actor_rollout_ref.actor.fsdp_config.mixed_precision"


@pytest.mark.parametrize(
    ("hardware", "overrides", "expected"),
    [
        ("cpu", [], None),
        ("gpu", [], "bfloat16"),
        ("cpu", ["actor_rollout_ref.rollout.dtype=bfloat16"], "bfloat16"),
        ("cpu", ["actor_rollout_ref.rollout.dtype=auto"], "auto"),
        ("cpu", [f"{MIXED}.param_dtype=bf16"], "bf16"),
        ("cpu", [f"{MIXED}=null"], "bf16"),
        ("gpu", ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"], None),
    ],
)
def test_either_of_engine_and_trainer_may_compute_in_less(
    tmp_path: Path, hardware: str, overrides: list[str], expected: str | None
) -> None:
    assert reduced_precision(config(tmp_path, *overrides, hardware=hardware)) == expected


def test_the_engines_log_probabilities_are_trained_with_in_full_precision_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for hardware, kept in (("cpu", True), ("gpu", False)):
        setup = config(tmp_path, BYPASS, "measured_in=float32", hardware=hardware)
        follow_precision(setup)
        assert setup.algorithm.rollout_correction.bypass_mode is kept
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == (0 if kept else 2)
    assert lines[0].startswith(f"note: {BYPASS} is switched off: in bfloat16 ")
    assert setup.algorithm.rollout_correction.rollout_is is None
    setup = config(tmp_path, BYPASS, "trainer.v1.trainer_mode=colocate_async", hardware="gpu")
    assert setup.algorithm.rollout_correction.rollout_is is None
    follow_precision(setup)
    assert setup.algorithm.rollout_correction.rollout_is == "token"
    capsys.readouterr()
    assert lines[1].startswith("note: this preset's results were measured in float32; this run computes in bfloat16")


def test_float32_on_a_gpu_is_not_the_trainers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"]
    setup = config(tmp_path, BYPASS, "measured_in=float32", *full, hardware="gpu")
    follow_precision(setup)
    assert not setup.algorithm.rollout_correction.bypass_mode
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: {BYPASS} is switched off: on cuda ")


def test_nothing_is_said_where_nothing_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follow_precision(config(tmp_path, hardware="gpu"))
    assert capsys.readouterr().err == ""
