"""The audit of a run that began at another run's checkpoint: its own games, from the step after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.storage.record_folder import RecordFolder
from tests.lab.audit import test_audit, test_audit_in_flight
from tests.lab.audit.test_audit import GAMES, STEPS, audit

#: The step of the other run's checkpoint.
FORK = 2


def forked(run_dir: Path, make_run: Callable[..., Path], **changes: Any) -> Path:
    """A whole run as its fork would be: without what came up to ``FORK``."""
    make_run(run_dir, **changes)
    for step in range(1, FORK + 1):
        RecordFolder(run_dir / "games").file("train", step).unlink(missing_ok=True)
    shutil.rmtree(run_dir / "checkpoints" / f"global_step_{FORK}")
    for file in (run_dir / "checkpoints").glob("*/spiral.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"records_after": FORK}))
    return run_dir


@pytest.mark.parametrize(
    ("make_run", "changes"),
    [
        (test_audit.make_run, {}),
        (test_audit.make_run, {"batch_unit": "turns", "data__train_batch_size": 40}),
        (test_audit.make_run, {"records__every": 2}),
        (test_audit_in_flight.make_run, {}),
    ],
    ids=["games", "turns", "every second step", "asynchronous"],
)
def test_a_fork_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_run: Callable[..., Path], changes: dict[str, Any]
) -> None:
    status, report, found = audit(forked(tmp_path, make_run, **changes), capsys)
    assert (status, found["problems"]) == (0, [])
    assert found["checkpoints"] == [STEPS]
    assert f"the run began at step {FORK} of another one, whose games are not looked at" in report
    unknown = make_run is test_audit_in_flight.make_run or "batch_unit" in changes
    assert ("how many were launched before is not known" in report) == unknown
    assert "games were launched before the last one" not in report, "nobody knows how many"


def test_a_forks_own_games_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = forked(tmp_path, test_audit.make_run)
    RecordFolder(run_dir / "games").file("train", FORK + 1).unlink()
    assert audit(run_dir, capsys)[2]["problems"] == [f"step {FORK + 1}: no file of games"]


def test_a_fork_that_has_saved_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = forked(tmp_path, test_audit.make_run)
    shutil.rmtree(run_dir / "checkpoints")
    assert audit(run_dir, capsys)[2]["problems"] == ["step 1, 2: no file of games"]
    file = run_dir / "config.yaml"
    told = {"resume_mode": "resume_path", "resume_from_path": f"/first/checkpoints/global_step_{FORK}"}
    OmegaConf.save(OmegaConf.merge(OmegaConf.load(file), {"trainer": told}), file)
    status, _, found = audit(run_dir, capsys)
    assert (status, found["problems"], found["checkpoints"]) == (0, [], [])


def test_an_asynchronous_fork_may_finish_games_of_another_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that were in flight at the checkpoint were drawn by the settings of before."""
    run_dir = forked(tmp_path, test_audit_in_flight.make_run)
    file = run_dir / "config.yaml"
    OmegaConf.save(OmegaConf.merge(OmegaConf.load(file), {"games": ["TicTacToe", "KuhnPoker"]}), file)
    status, _, found = audit(run_dir, capsys)
    assert (status, found["problems"]) == (0, [])
    assert sum(tally["games"] for tally in found["games"].values()) == (STEPS - FORK) * GAMES
