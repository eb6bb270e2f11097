"""What a step trains: which turns are left out, and how the others are spread over mini-batches and ranks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.players.records import GameRecord
from recipe.spiral.rae import Baselines
from recipe.spiral.rollouts.channel import Played
from recipe.spiral.training.credit import Filters
from recipe.spiral.training.metrics import training_metrics
from recipe.spiral.training.rows import keep
from recipe.spiral.training.step import Step, account, deal
from tests.fake_queue import FakeQueue, batch_of, launches_of
from tests.made import record, turn

# -- filters ----------------------------------------------------------------------------------------------------------


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
    advantages, _ = step.rows.estimator(kept.keys, Noted())(torch.zeros(1, 3), torch.ones(1, 3))
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


# -- mini-batches and ranks --------------------------------------------------------------------------------------------


def cells(shares: list[list[int]], turns: int, mini_batches: int) -> list[list[list[int]]]:
    """The turns of each rank in each mini-batch, as verl's workers cut their part."""
    size = len(shares[0]) // mini_batches
    return [
        [[i for i in share[number * size : (number + 1) * size] if i < turns] for share in shares]
        for number in range(mini_batches)
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=150),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([1, 1, 2, 3]),
)
def test_turns_are_spread_evenly(lengths: list[int], mini_batches: int, ranks: int, at_once: int) -> None:
    turns, multiple = len(lengths), mini_batches * ranks * at_once
    rows = -(-turns // multiple) * multiple
    shares, _ = deal([*lengths, *[2] * (rows - turns)], turns, mini_batches, ranks)
    assert sorted(i for share in shares for i in share) == list(range(rows)), "each row is there once"
    assert {len(share) for share in shares} == {rows // ranks}

    by_mini_batch = cells(shares, turns, mini_batches)
    whole = [sorted(i for cell in ranked for i in cell) for ranked in by_mini_batch]
    assert [i for run in whole for i in run] == list(range(turns)), "the order of the games' keys"
    for sizes in ([len(run) for run in whole], *([len(cell) for cell in ranked] for ranked in by_mini_batch)):
        assert max(sizes) - min(sizes) <= 1, sizes


def test_ranks_get_equal_work_in_each_mini_batch() -> None:
    lengths = [100, 900, 100, 900, 500, 500, 500, 500]
    shares, _ = deal(lengths, 8, mini_batches=2, ranks=2)
    work = [[sum(lengths[i] for i in cell) for cell in ranked] for ranked in cells(shares, 8, 2)]
    assert work == [[1000, 1000], [1000, 1000]]
    many = np.random.default_rng(0).integers(10, 2000, 100_000).tolist()
    sums = [sum(many[i] for i in share) for share in deal(many, 100_000, mini_batches=2, ranks=8)[0]]
    assert max(sums) - min(sums) < 2000 * 2, "by one row a mini-batch at most"


def test_units_stay_side_by_side() -> None:
    """On each of the ranks, in the unit's own order; padding comes in units, too."""
    shares, _ = deal([10] * 6 + [2] * 2, 6, mini_batches=1, ranks=2, together=2)
    units = sorted(tuple(share[first : first + 2]) for share in shares for first in (0, 2))
    assert units == [(0, 1), (2, 3), (4, 5), (6, 7)]
