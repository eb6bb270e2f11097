"""How many members a pool and the checkpoints hold at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from recipe.spiral.lab.planning.estimate import _pool
from recipe.spiral.opponents.pool import Pool, snapshot_name


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_the_bound_holds(pool_size: int, kept: int, interval: int, save_freq: int) -> None:
    """Files as sets of names, through 40 steps; at every moment, also while a member is being written."""
    pool, checkpoints, most = Pool(pool_size, 0, interval), [], 0
    for step in range(41):
        if pool.due(step):
            held = set(pool.members).union(*checkpoints)
            most = max(most, len(held | {snapshot_name(step)}))
            pool.add(snapshot_name(step), step)
        if step and step % save_freq == 0:
            checkpoints = [*checkpoints, set(pool.members)]
            most = max(most, len(set(pool.members).union(*checkpoints)))
            checkpoints = checkpoints[-kept:]
    assert most <= members(pool_size, kept, 40, interval, save_freq)
    assert most <= members(pool_size, None, 40, interval, save_freq)


def test_the_bound_by_hand() -> None:
    """In the pool, one being written included, and held by checkpoints alone."""
    assert members(25, 2, 999, 1, save_freq=100) == 26 + 50
    assert members(25, 2, 999, 1, save_freq=10) == 26 + 20
    assert members(25, None, 80, 1, save_freq=10) == 26 + 55
    assert members(25, 2, 19, 1, save_freq=10) == 20
    assert members(25, 2, 999, None, save_freq=10) == 0


def members(size: int, kept: int | None, steps: int, interval: int | None, save_freq: int) -> int:
    trainer = {"total_training_steps": steps, "save_freq": save_freq, "max_actor_ckpt_to_keep": kept}
    fsp = {"size": size, "update_interval": interval, "start_from": 0, "initial": False}
    return _pool(OmegaConf.create({"fsp": fsp, "trainer": trainer}), 1).size
