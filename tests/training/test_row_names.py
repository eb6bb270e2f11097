"""A row is found by verl's name of it, and by no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.training.row_names import PADDING, RowNames

#: Three sessions; the rows of the second and third lie apart, as those of branches do.
SESSIONS, OF_ROWS = {"a_0": 0, "a_1": 1, "b_0": 2}, np.array([0, 0, 1, 2, 1, 2])


@given(st.lists(st.integers(0, 4), max_size=30))
def test_each_row_is_found_by_its_name(of_rows: list[int]) -> None:
    """A session's rows are counted in the order of their places, wherever these lie."""
    names = RowNames({f"u_{session}": session for session in range(5)}, np.array(of_rows, np.int64))
    expected = [f"u_{session}_{of_rows[:place].count(session)}" for place, session in enumerate(of_rows)]
    assert names.keys == expected
    assert names.places([*reversed(expected)]).tolist() == [*reversed(range(len(of_rows)))]


@pytest.mark.parametrize("key", ["a_0_2", "a_1_-1", "a_1_x", "a_1_", "a_1", "c_0_0", "b_0_²", "", "b_0_0_0"])
def test_a_strange_name_is_no_rows(key: str) -> None:
    assert RowNames(SESSIONS, OF_ROWS).places([key, "b_0_1"]).tolist() == [PADDING, 5]


def test_names_that_change_are_looked_up_again() -> None:
    names, keys = RowNames(SESSIONS, OF_ROWS), ["a_1_1", "a_0_0"]
    assert names.places(keys).tolist() == [4, 0]
    keys.reverse()
    assert names.places(keys).tolist() == [0, 4]
    keys[0] = "pad0_0_0"
    assert names.places(keys).tolist() == [PADDING, 4]
    names.remember(keys, np.array([1, 2]))
    assert names.places([*keys]).tolist() == [1, 2]


def test_no_rows() -> None:
    assert RowNames({}, np.empty(0, np.int64)).places(["a_0_0"]).tolist() == [PADDING]
    assert RowNames({}, np.empty(0, np.int64)).keys == []
