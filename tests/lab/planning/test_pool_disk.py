"""How many members a pool and the checkpoints hold at most."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.lab.planning.estimate import most_members
from recipe.spiral.opponents.members import snapshot_name
from recipe.spiral.opponents.pool import Pool


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from(["fifo", "spread", "best"]),
)
def test_the_bound_holds(pool_size: int, kept: int, interval: int, save_freq: int, keep: Any) -> None:
    """Files as sets of names, through 40 steps; at every moment, also while a member is being written."""
    pool, checkpoints, most = Pool(pool_size, 0, interval, keep), [], 0
    for step in range(41):
        if pool.due(step):
            held = set(pool.names).union(*checkpoints)
            most = max(most, len(held | {snapshot_name(step)}))
            pool.add(snapshot_name(step), step)
        if step and step % save_freq == 0:
            checkpoints = [*checkpoints, set(pool.names)]
            most = max(most, len(set(pool.names).union(*checkpoints)))
            checkpoints = checkpoints[-kept:]
    leaving, made = -(-save_freq // interval), 40 // interval + 1
    bounds = [
        sum(most_members(pool_size, kept, made)),
        sum(most_members(pool_size, kept, made, leaving)),
        sum(most_members(pool_size, None, made)),
    ]
    assert all(most <= bound for bound in bounds)
    assert bounds[1] <= bounds[0] <= bounds[2]


def test_the_bound_by_hand() -> None:
    """In the pool, one being written included, and held by checkpoints alone."""
    assert most_members(25, 2, made=1000) == (26, 50)
    assert most_members(25, 2, made=1000, leaving=10) == (26, 20)
    assert most_members(25, None, made=81) == (26, 55)
    assert most_members(25, 2, made=20) == (20, 0)
