"""How much of the disk a pool takes at most, with the members that have left it and that checkpoints still hold."""

from __future__ import annotations

import math
from pathlib import Path

from ..storage.disk import gigabytes, same_disk, size
from .pool import Pool
from .pool_folder import PoolFolder


def disk_line(
    pool: Pool, folder: PoolFolder, snapshot: int, checkpoints: Path, kept: int | None, save_freq: int, steps: int
) -> str:
    """The bound as a line for people.

    Args:
        pool: whose size and interval count.
        folder: with the members that there are.
        snapshot: bytes that one of the policy takes.
        checkpoints: their folder; on another disk than the pool, they hold copies.
        kept: how many checkpoints stay, with one that the run was told to go on from; None or 0: all.
        save_freq: steps between two of them; none where it is not above 0.
        steps: of the run.
    """
    largest = max([snapshot, *(size(folder.path(name)) for name in folder.names)])
    every = pool.update_interval
    made = len(folder.names) + (0 if every is None else max(steps - pool.start_from, 0) // every + 1)
    leaving = None if every is None or save_freq <= 0 else math.ceil(save_freq / every)
    if not same_disk(folder.folder, checkpoints):
        saved = steps // save_freq if save_freq > 0 else 0
        kept, leaving, made = min(kept or saved, saved), None, made * (saved + 1)
    inside, held = most_members(pool.size, kept, made, leaving)
    also = f", and {held} that have left it and are held by checkpoints" if held else ""
    return (
        f"{folder.folder}: the pool takes at most {gigabytes(largest * (inside + held))}: {inside} members of "
        f"{gigabytes(largest)}, one of them being written{also}"
    )


def most_members(pool_size: int, kept: int | None, made: int, leaving: int | None = None) -> tuple[int, int]:
    """How many members are in the pool at most, with one that is being written, and how many only checkpoints hold.

    Args:
        pool_size: the pool's.
        kept: how many checkpoints stay; None or 0: all.
        made: how many members a run has at most from its start to its end.
        leaving: how many members leave at most from one checkpoint to the next, which is save_freq / update_interval,
            rounded up; None: all that a checkpoint holds may have left when the next is written.
    """
    inside = min(pool_size + 1, made)
    held = kept * min(pool_size, pool_size if leaving is None else leaving) if kept else made
    return inside, min(made - inside, held)
