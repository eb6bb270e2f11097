"""SPIRAL's own part of a checkpoint, and whether a checkpoint is whole.

verl writes ``global_step_N/`` and then names N in a tracker file; what is ours lies in it as ``spiral.json`` and, with
``ref_update_freq``, as ``ref/``.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

STATE_FILE = "spiral.json"
REFERENCE = "ref"
TRACKER = "latest_checkpointed_iteration.txt"


class BrokenCheckpoint(ValueError):
    """A checkpoint cannot be resumed from; the message says what is missing and what to do."""


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write our state into a checkpoint folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{STATE_FILE}.tmp"
    with unfinished.open("w", encoding="utf-8") as out:
        json.dump(state, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(folder / STATE_FILE)


def read_state(folder: Path) -> dict[str, Any]:
    """Our state in a checkpoint folder.

    Raises:
        BrokenCheckpoint: there is none, or it cannot be read.
    """
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenCheckpoint(f"{folder / STATE_FILE}: {error}") from error
    return state


def reference_file(folder: Path, ranks: int, rank: int) -> Path:
    """Where a rank's shards of the reference policy lie, named as verl names the actor's."""
    return folder / f"model_world_size_{ranks}_rank_{rank}.pt"


def remove_old_references(checkpoints: Path) -> None:
    """verl keeps the newest actors only (``trainer.max_actor_ckpt_to_keep``); a reference goes with its actor."""
    for reference in checkpoints.glob(f"global_step_*/{REFERENCE}"):
        if not (reference.parent / "actor").is_dir():
            shutil.rmtree(reference)


def missing_parts(folder: Path, ranks: int) -> list[str]:
    """Which files a checkpoint of ``ranks`` ranks lacks; [] if it is whole."""
    parts = [STATE_FILE, "data.pt"]
    for kind in ("model", "optim", "extra_state"):
        parts += [f"actor/{kind}_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks)]
    if (folder / REFERENCE).is_dir():
        parts += [str(reference_file(Path(REFERENCE), ranks, rank)) for rank in range(ranks)]
    return [part for part in parts if not (folder / part).is_file() or (folder / part).stat().st_size == 0]


def steps(checkpoints: Path) -> list[int]:
    """The steps that have a folder, oldest first."""
    names = [path.name.removeprefix("global_step_") for path in checkpoints.glob("global_step_*")]
    return sorted(int(name) for name in names if name.isdecimal())


def check_resumable(checkpoints: Path, ranks: int) -> int | None:
    """The step that a run with these checkpoints goes on from; None for a fresh start.

    A tracker file that a kill left empty is written again.

    Raises:
        BrokenCheckpoint: the latest checkpoint is not whole.
    """
    tracker = checkpoints / TRACKER
    if not tracker.is_file():
        return None
    whole = [step for step in steps(checkpoints) if not missing_parts(checkpoints / f"global_step_{step}", ranks)]
    text = tracker.read_text(encoding="utf-8").strip()
    if not text.isdecimal():
        if not whole:
            raise BrokenCheckpoint(
                f"{tracker} is unreadable and no whole checkpoint lies beside it: start afresh with "
                "trainer.resume_mode=disable, or with another run_dir"
            )
        unfinished = tracker.with_suffix(".tmp")
        unfinished.write_text(str(whole[-1]), encoding="utf-8")
        unfinished.replace(tracker)
        return whole[-1]
    step = int(text)
    missing = missing_parts(checkpoints / f"global_step_{step}", ranks)
    if missing:
        older = [s for s in whole if s < step]
        instead = (
            f"go on from step {older[-1]} with trainer.resume_mode=resume_path "
            f"trainer.resume_from_path={checkpoints / f'global_step_{older[-1]}'}"
            if older
            else "start afresh with trainer.resume_mode=disable, or with another run_dir"
        )
        raise BrokenCheckpoint(
            f"checkpoint {checkpoints / f'global_step_{step}'} is not whole ({ranks} rank(s)): missing "
            f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}. Restore it, or {instead}"
        )
    return step
