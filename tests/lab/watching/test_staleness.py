"""A game's age, and how far the trained games are from the played ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.watching.staleness import staleness, staleness_metrics
from recipe.spiral.lab.watching.watcher import Watcher
from recipe.spiral.players.records import GameRecord
from tests.made import record, tokens, turn
from tests.made_configs import config


def game(index: int, *versions: tuple[int, int], trainable: tuple[int, ...] = (0, 1), **more: object) -> GameRecord:
    """A game whose turns were written by these versions, in turn by player 0 and 1."""
    turns = [
        turn(place % 2, place // 2, tokens=replace(tokens(), weight_versions=version))
        for place, version in enumerate(versions)
    ]
    return record(index, turns=turns, trainable=trainable, **more)  # type: ignore[arg-type]


def test_the_oldest_part_of_one_of_the_learners_turns_counts() -> None:
    assert staleness(game(0, (4, 4), (4, 4)), step=5) == 0
    assert staleness(game(0, (4, 4), (2, 3)), step=5) == 2
    assert staleness(game(0, (1, 1), (3, 3), trainable=(1,)), step=5) == 1, "player 0 is no learner"
    assert staleness(game(0, (1, 1), trainable=(1,)), step=5) == 0


def test_metrics_of_a_step() -> None:
    trained = [game(0, (4, 4)), game(1, (4, 4), (3, 4)), game(2, (2, 2))]
    dropped = [game(3, (0, 4), opponent="random", rewards=(1.0, -1.0))]
    metrics = staleness_metrics(trained, dropped, step=5)
    assert metrics["async/staleness/mean"] == 1 and metrics["async/staleness/max"] == 2
    assert [metrics[f"async/staleness/{age}"] for age in range(4)] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert metrics["async/versions_in_a_game"] == pytest.approx(4 / 3)
    assert metrics["async/dropped/random"] == 1
    assert metrics["async/dropped/TicTacToe/p0/win"] == 1
    assert staleness_metrics([], [], step=1)["async/staleness/mean"] == 0


def test_a_watcher_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """With the steps of before in its counts of steps in a row."""
    made = config(tmp_path, "max_void_steps=2")
    void = [record(2, opponent="gpt", trainable=(0,), turns=[], discarded="void", reason="no money")]

    def shown(watcher: Watcher, number: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        watcher.games({}, "train", number, [game(0, (0, 0))], void, "file")
        watcher.step(metrics)
        return metrics

    whole, resumed = Watcher(made), Watcher(made)
    shown(whole, 1)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    expected = shown(whole, 2)
    assert shown(resumed, 2) == expected
    assert resumed.stop == whole.stop and "no money" in resumed.stop
    again = Watcher(made)
    again.load_state_dict(whole.state_dict())
    shown(again, 3)
    assert not again.stop, "after a stop it has max_void_steps again"
