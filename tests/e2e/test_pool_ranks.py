"""A pool on two ranks: a member has an engine on each of them, and both answer as it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.record_folder import RecordFolder

from .conftest import Run, small
from .test_fsp import check_who_answered

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_a_member_plays_on_two_ranks(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    run = Run(
        tmp_path / "run",
        *small(model, "seed=5", "trainer.total_training_steps=4", "trainer.n_gpus_per_node=2"),
        *("trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1"),
        *("fsp.enabled=true", "fsp.update_interval=2", "games=[TicTacToe,KuhnPoker]"),
    )
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    games = list(RecordFolder(run.run_dir / "games").read("train"))
    check_who_answered(games)
    assert len({name for game in games if game.opponent == "pool" for name in game.players}) == 3
    assert audit([str(run.run_dir)]) == 0
