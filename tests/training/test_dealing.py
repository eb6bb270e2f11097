"""Turns are spread evenly over mini-batches and ranks, whatever their lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.training.rows import PADDING
from recipe.spiral.training.step import deal, layout


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
    shares = layout(lengths, rows, mini_batches, ranks)
    assert sorted(i for share in shares for i in share) == list(range(rows)), "each row is there once"
    assert {len(share) for share in shares} == {rows // ranks}

    by_mini_batch = cells(shares, turns, mini_batches)
    whole = [sorted(i for cell in ranked for i in cell) for ranked in by_mini_batch]
    assert [i for run in whole for i in run] == list(range(turns)), "the order of the games' keys"
    for sizes in (
        [len(run) for run in whole],
        *([len(cell) for cell in ranked] for ranked in by_mini_batch),
    ):
        assert max(sizes) - min(sizes) <= 1, sizes


def test_ranks_get_equal_work_in_each_mini_batch() -> None:
    lengths = [100, 900, 100, 900, 500, 500, 500, 500]
    shares = layout(lengths, 8, mini_batches=2, ranks=2)
    work = [[sum(lengths[i] for i in cell) for cell in ranked] for ranked in cells(shares, 8, 2)]
    assert work == [[1000, 1000], [1000, 1000]]
    many = np.random.default_rng(0).integers(10, 2000, 100_000).tolist()
    sums = [sum(many[i] for i in share) for share in layout(many, 100_000, mini_batches=2, ranks=8)]
    assert max(sums) - min(sums) < 2000 * 2, "by one row a mini-batch at most"


def test_units_stay_side_by_side() -> None:
    """On each of the ranks, in the unit's own order."""
    places = np.array([3, 0, 2, 1, PADDING, PADDING, 5, 4])
    order, _ = deal(places, [10] * 8, mini_batches=1, ranks=2, units=[[2, 0], [1, 3], [5, 4]])
    shares = [places[order[:4]].tolist(), places[order[4:]].tolist()]
    units = sorted(tuple(share[first : first + 2]) for share in shares for first in (0, 2))
    assert units == [(PADDING, PADDING), (1, 3), (2, 0), (5, 4)]
