"""Which turns are played and not trained, and what the rest of the machinery makes of them."""

from __future__ import annotations

import copy

import pytest
import torch

from recipe.spiral.players.records import GameRecord
from recipe.spiral.rae import Baselines
from recipe.spiral.rollouts.channel import Played
from recipe.spiral.training.filters import Filters
from recipe.spiral.training.metrics import training_metrics
from recipe.spiral.training.rows import estimate, keep
from recipe.spiral.training.step import Step, account
from tests.fake_queue import FakeQueue, batch_of, launches_of
from tests.made import record, turn


def game(rewards: tuple[float, float], baselines: tuple[float, float] = (0.0, 0.0), index: int = 0) -> GameRecord:
    return record(index, rewards=rewards, turns=[turn(0, 0), turn(1, 0)], baselines=baselines)


class Noted(Baselines):
    """The baselines that are written in the records, with a scale by role."""

    def __init__(self, *scales: float) -> None:
        self._scales = scales or (1.0, 1.0)

    def of(self, record: GameRecord) -> tuple[float | None, float | None]:
        return record.baselines

    def scale(self, record: GameRecord, role: int) -> float:
        return self._scales[role]


def reasons_of(filters: Filters, played: GameRecord) -> list[str | None]:
    return [filters.reason(played, turn, played.baselines[turn.player]) for turn in played.turns]


WON, DRAWN = game((1.0, -1.0)), game((0.0, 0.0))


@pytest.mark.parametrize(
    ("filters", "played", "reasons"),
    [
        (Filters(), DRAWN, [None, None]),
        (Filters(draws=True), DRAWN, ["draw", "draw"]),
        (Filters(draws=True), game((0.0, 0.0), (0.3, -0.3)), ["draw", "draw"]),
        (Filters(draws=True), WON, [None, None]),
        (Filters(zero_advantages=True), DRAWN, ["zero_advantage", "zero_advantage"]),
        (Filters(zero_advantages=True), game((0.0, 0.0), (1e-9, 0.0)), [None, "zero_advantage"]),
        (Filters(zero_advantages=True), game((1.0, -1.0), (1.0, 0.0)), ["zero_advantage", None]),
        (Filters(draws=True, zero_advantages=True), DRAWN, ["draw", "draw"]),
    ],
)
def test_reasons(filters: Filters, played: GameRecord, reasons: list[str | None]) -> None:
    assert reasons_of(filters, played) == reasons


def step_of(games: list[GameRecord], filters: Filters, keys: list[str]) -> Step:
    return account(1, Played(games, []), launches_of(games), keys, Noted(), filters)


def test_rows_that_are_left_out_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue.install(monkeypatch)
    games = [game((1.0, -1.0), index=1), game((0.0, 0.0), index=2)]
    batch, _ = batch_of(queue, games)
    kept = keep(batch, step_of(games, Filters(draws=True), batch.keys).keys)
    assert kept.keys == ["u1_0_0", "u1_1_0"]
    assert sorted(queue.partitions["train"]) == ["u1_0_0", "u1_1_0"]
    assert [turn.left_out for game in games for turn in game.turns] == [None, None, "draw", "draw"]


def test_one_row_stays_and_has_no_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl has no empty batches."""
    queue = FakeQueue.install(monkeypatch)
    games = [game((0.0, 0.0), (0.4, -0.4), index=1)]
    batch, _ = batch_of(queue, games)
    step = step_of(games, Filters(draws=True), batch.keys)
    kept = keep(batch, step.keys)
    assert (kept.keys, step.trains) == (["u1_0_0"], False)
    advantages, _ = estimate(step.rows.facts(kept, Noted(), 1.0, 1.0), torch.zeros(1, 3), torch.ones(1, 3))
    assert advantages.tolist() == [[0.0] * 3]


def test_games_know_what_they_were_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of A over a turn's trained tokens. Where verl masked all of them, the turn was rejected; in the mean
    over turns it counts as verl counts it."""
    queue = FakeQueue.install(monkeypatch)
    played, skipped = game((1.0, -1.0), (0.5, 0.25), index=1), game((0.0, 0.0), index=2)
    batch, rows = batch_of(queue, [played, skipped])
    skipped.turns[0].left_out = "draw"
    masks = [[0, 0], [1, 0], [1, 1], [1, 1]]
    advantages = [[0.5, 0.5], [-1.0, 9.0], [3.0, 3.0], [1.0, 2.0]]
    for key, mask, advantage in zip(batch.keys, masks, advantages, strict=True):
        queue.partitions["train"][key][0].update(advantages=torch.tensor(advantage), response_mask=torch.tensor(mask))
    step = Step(1, rows=rows)
    noted = [copy.deepcopy(played.baselines), copy.deepcopy(skipped.baselines)]
    rows.note_training(batch, Noted())
    assert [(turn.left_out, turn.advantage) for turn in (*played.turns, *skipped.turns)] == [
        ("rejected", None),
        (None, -1.0),
        ("draw", None),
        (None, 1.5),
    ]
    assert [played.baselines, skipped.baselines] == noted
    assert step.trains
    assert training_metrics([played, skipped], [])["turns/left_out/rejected"] == 1 / 4
    for left in (*played.turns, *skipped.turns):
        left.left_out = left.left_out or "rejected"
    assert not step.trains, "verl cannot update on nothing"
