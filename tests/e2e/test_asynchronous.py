"""The asynchronous modes: a run accounts for every game, and one that is killed goes on as the same run."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from recipe.spiral.audit.__main__ import main as audit
from recipe.spiral.play.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder
from recipe.spiral.training.staleness import staleness

from .conftest import Run, small

pytestmark = pytest.mark.e2e
STEPS, GAMES = 6, 16
MODES = ("colocate_async", "separate_async")


def asynchronous(model: Path, mode: str, *overrides: str) -> list[str]:
    return small(
        model,
        "seed=7",
        f"trainer.v1.trainer_mode={mode}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=2",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        *overrides,
    )


def steps_of(run_dir: Path) -> dict[int, list[GameRecord]]:
    """The games of each step by the step that trained or dropped them."""
    folder = RecordFolder(run_dir / "games")
    return {step: list(folder.read_step("train", step)) for step in folder.steps("train")}


def in_flight(run_dir: Path, step: int) -> set[int]:
    """The numbers of the games that a checkpoint has in flight."""
    state = json.loads((run_dir / f"checkpoints/global_step_{step}/spiral.json").read_text())
    return {(block - 1) * GAMES + index for block, index, _ in state["in_flight"]}


def number(record: GameRecord) -> int:
    return (record.key.step - 1) * GAMES + record.key.index


def check_accounting(run_dir: Path, most: int | None) -> None:
    """Every game that was launched is trained or dropped once, or in flight; recomputed from the records alone."""
    steps = steps_of(run_dir)
    assert list(steps) == list(range(1, STEPS + 1))
    baselines: dict[tuple[str, int], float] = {}
    seen: Counter[int] = Counter()
    for step, records in steps.items():
        trained = [record for record in records if record.discarded is None]
        assert len(trained) == GAMES
        seen.update(number(record) for record in records)
        for record in trained:
            assert most is None or staleness(record, step) <= most
            for turn in record.turns:
                assert turn.tokens is not None and turn.tokens.weight_versions is not None
                first, last = turn.tokens.weight_versions
                assert 0 <= first <= last <= step - 1
                expected = record.rewards[turn.player] - baselines.get((record.game, turn.player), 0.0)
                assert turn.advantage == pytest.approx(expected, abs=1e-6), "both players' turns are in one step"
        for record in trained:  # they are in the order of their keys
            for role in (0, 1):
                value = baselines.get((record.game, role), 0.0)
                baselines[record.game, role] = 0.95 * value + 0.05 * record.rewards[role]
        for record in records:
            if record.discarded is not None:
                assert record.discarded == "stale" and staleness(record, step) > (most or 0)
    assert set(seen.values()) == {1}, "no game is there twice"
    left = in_flight(run_dir, STEPS)
    assert not left & seen.keys()
    assert seen.keys() | left == set(range(len(seen) + len(left))), "no game is lost"
    assert audit([str(run_dir)]) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_goes_on_and_every_game_is_accounted_for(
    tmp_path: Path, model: Path, runs: list[Run], mode: str
) -> None:
    overrides = asynchronous(model, mode)
    killed = Run(tmp_path / "run", *overrides)
    runs.append(killed)
    killed.wait_for(r"^step *3/6 ")
    killed.signal(signal.SIGKILL)
    killed.wait()
    resumed = Run(tmp_path / "run", *overrides)
    runs.append(resumed)
    resumed.wait_for(r"^going on after step [24] of 6")
    assert resumed.wait() == 0, resumed.output[-4000:]
    check_accounting(tmp_path / "run", most=4)
    assert not list((tmp_path / "run").glob("weights/*"))


def test_stale_games_are_dropped_and_named(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    """Two batches are played ahead, and no turn may be older than the version before the last."""
    run = Run(
        tmp_path / "run",
        *asynchronous(model, "colocate_async", "asynchronous.max_staleness=1", "asynchronous.on_stale=drop"),
        "trainer.v1.colocate_async.num_warmup_batches=3",
    )
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    check_accounting(tmp_path / "run", most=1)
    dropped = [record for records in steps_of(tmp_path / "run").values() for record in records if record.discarded]
    lines = [
        line for file in sorted((tmp_path / "run").glob("metrics-*.jsonl")) for line in file.read_text().splitlines()
    ]
    logged = [json.loads(line)["data"] for line in lines]
    assert dropped and sum(entry.get("async/dropped", 0.0) for entry in logged) == len(dropped)
