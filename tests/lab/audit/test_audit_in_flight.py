"""The audit of an asynchronous run: each game is trained or discarded once or in flight, and none is too old."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.checkpoints import name_latest, write_state
from recipe.spiral.storage.run_files import CONFIG
from tests.lab.audit.test_audit import GAMES, SEED, STEPS, Sampler, audit, config, train

MOST = 1
#: The batches that are played ahead.
AHEAD = 2
Steps = dict[int, list[GameRecord]]


class Policy(Sampler):
    """Its turns were written by one version after the other, from ``first`` to ``last``."""

    def __init__(self, first: int, last: int) -> None:
        self._versions = (first, last)

    async def respond(self, position: Position) -> Response:
        response = await super().respond(position)
        first, last = self._versions
        version = min(first + position.turn, last)
        assert response.tokens is not None
        return replace(response, tokens=replace(response.tokens, weight_versions=(version, min(version + 1, last))))


def played(settings: Any, number: int, first: int, last: int) -> GameRecord:
    row = training_row(parse_games(settings.games), SEED, GAMES, number)
    key, policy = GameKey(**row["key"]), Policy(first, last)
    game = make(row["data_source"], key.game_seed())
    return asyncio.run(play(key, row["data_source"], game, [policy, policy], (0, 1), Rules.from_config(settings.rules)))


def make_run(
    run_dir: Path, change: Callable[[Steps], None] = lambda steps: None, stuck: int | None = None, **changes: Any
) -> Path:
    """Each step trains some of the games that are under way, never the one of number ``stuck``; in step 3 a game is
    dropped."""
    settings = config(trainer__v1__trainer_mode="colocate_async", asynchronous__max_staleness=MOST, **changes)
    run_dir.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(settings, run_dir / CONFIG)
    draw, moving, in_flight, launched = random.Random(1), RoleBaselines(), [], 0
    made: Steps = {}
    states: dict[int, dict[str, Any]] = {}
    for step in range(1, STEPS + 1):
        target = (AHEAD + 1) * GAMES
        while len(in_flight) < target:
            in_flight.append(launched)
            launched += 1
        over = [number for number in in_flight if number != stuck]
        sampled = sorted(draw.sample(over, GAMES + (step == 3)))
        records = [played(settings, number, max(step - 1 - MOST, 0), step - 1) for number in sampled]
        if step == 3:
            records[4] = replace(played(settings, sampled[4], 0, 2), discarded="stale")
        in_flight = [number for number in in_flight if number not in sampled]
        train(settings, [record for record in records if record.discarded is None], moving)
        made[step] = records
        named = [[number // GAMES + 1, number % GAMES, None] for number in in_flight]
        states[step] = {"step": step, "settings": {"seed": SEED}, "baselines": moving.state_dict(), "in_flight": named}
    change(made)
    for step, records in made.items():
        RecordFolder(run_dir / "games").write("train", step, records)
        if step % 2 == 0:
            write_state(run_dir / "checkpoints" / f"global_step_{step}", states[step])
            name_latest(run_dir / "checkpoints", step)
    return run_dir


def test_a_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report, found = audit(make_run(tmp_path), capsys)
    assert (status, found["problems"]) == (0, [])
    assert found["discarded"] == {"stale": 1} and found["checkpoints"] == [2, 4]
    assert sum(tally["games"] for tally in found["games"].values()) == STEPS * GAMES
    assert " games were launched before the last one, and are still in flight" in report


@pytest.mark.parametrize(
    ("log", "on_stale", "ends"),
    [
        ("training for 4 steps\n", "wait", False),
        ("going on after step 2 of 4\n", "wait", True),
        (None, "wait", True),
    ],
)
def test_a_game_that_does_not_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str | None, on_stale: str, ends: bool
) -> None:
    """It is found in four steps, where nobody knows of a restart, after which it was played again."""
    run_dir = make_run(tmp_path, stuck=0, asynchronous__on_stale=on_stale)
    if log is not None:
        (run_dir / "train.log").write_text(log)
    status, report, found = audit(run_dir, capsys)
    assert status == (0 if ends else 1) and "the oldest, train-5-1-0-0, for at least 3 steps" in report
    told = "game train-5-1-0-0 was launched by step 1 and is in flight after step 4, with asynchronous.max_staleness=1"
    assert ends or [line.startswith(told) for line in found["problems"]] == [True]


def twice(steps: Steps) -> None:
    steps[4].append(replace(steps[1][0]))


def lost(steps: Steps) -> None:
    del steps[2][3]


def too_old(steps: Steps) -> None:
    for turn in steps[4][0].turns:
        turn.tokens = replace(turn.tokens, weight_versions=(1, 3))


def from_the_future(steps: Steps) -> None:
    steps[2][0].turns[0].tokens = replace(steps[2][0].turns[0].tokens, weight_versions=(1, 2))


def dropped_too_soon(steps: Steps) -> None:
    for turn in steps[3][4].turns:
        turn.tokens = replace(turn.tokens, weight_versions=(1, 2))


def trained_though_dropped(steps: Steps) -> None:
    steps[3][4].discarded = None


def another_order(steps: Steps) -> None:
    """As if step 2's games had moved the baselines before step 1's."""
    steps[1], steps[2] = steps[2], steps[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (twice, "is there again: step 1 has it"),
        (lost, "1 games are lost: neither in flight nor in the files"),
        (too_old, "was trained with staleness 2, more than 1"),
        (from_the_future, "that step 2 trains: the last version is 1"),
        (dropped_too_soon, "was dropped as stale, and has staleness 1 of 1"),
        (trained_though_dropped, f"{GAMES + 1} games were sampled, should be {GAMES}"),
        (another_order, "baseline"),
    ],
)
def test_a_change_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Steps], None], problem: str
) -> None:
    status, _, found = audit(make_run(tmp_path, change), capsys)
    assert status == 1 and any(problem in line for line in found["problems"]), found["problems"]


def test_a_checkpoint_that_names_a_trained_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(tmp_path)
    first = next(RecordFolder(run_dir / "games").read_step("train", 1))
    file = run_dir / "checkpoints" / "global_step_4" / "spiral.json"
    state = json.loads(file.read_text())
    state["in_flight"].append([first.key.step, first.key.index, None])
    file.write_text(json.dumps(state))
    status, _, found = audit(run_dir, capsys)
    assert status == 1 and [line for line in found["problems"] if "1 games in flight were trained" in line]


def test_batches_of_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = {"batch_unit": "turns", "data__train_batch_size": GAMES}
    status, _, found = audit(make_run(tmp_path, **turns), capsys)
    assert (status, found["problems"]) == (0, [])
