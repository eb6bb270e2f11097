"""Where a run's checkpoints lie, and whether one is whole.

A checkpoint is a folder ``global_step_N/``: verl's files of the policy, the critic and the dataset's place, and with
games in flight ``transfer_queue/``; ours are ``spiral.json``, ``ref/`` (with ``ref_update_freq``) and ``pool/``. Its
manifest has all of them. It gets its name when it is whole and on the disk, and then the tracker file names its step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from .disk import read_json, write_whole
from .manifest import MANIFEST, changed_files
from .run_config import load_config, setting

#: The form of checkpoints. Version 0.2.0 and earlier ones wrote no number.
FORMAT = 1
STATE_FILE = "spiral.json"
REFERENCE = "ref"
POOL = "pool"
#: The config of a run's last start, in its folder.
CONFIG = "config.yaml"
#: What an exported folder has of it.
EXPORTED = "spiral.yaml"
TRACKER = "latest_checkpointed_iteration.txt"
#: Where a start puts what it does not go on with, as ``time.strftime`` takes it.
EARLIER = "earlier-%Y%m%d-%H%M%S"


class BrokenCheckpoint(ValueError):
    """A checkpoint cannot be gone on with; the message says why."""


# -- of a run ----------------------------------------------------------------------------------------------------------


def config_file(run_dir: Path) -> Path:
    """The config of a run's last start. An exported folder has what it takes of the run's config to play as the run
    does."""
    own, exported = run_dir / CONFIG, run_dir / EXPORTED
    return exported if exported.is_file() and not own.is_file() else own


def config_of(run_dir: Path) -> DictConfig | None:
    """The config of a run's last start; None if there is none, or it is damaged."""
    try:
        return load_config(config_file(run_dir))
    except (OSError, ValueError, OmegaConfBaseException):
        return None


def folder_of(run_dir: Path) -> Path:
    """The folder of a run's checkpoints, by its config: ``trainer.default_local_dir``.

    If the run's folder was moved, a folder inside it moved along. Without a config it is ``checkpoints`` in the run's.
    """
    config = config_of(run_dir)
    written, before = setting(config, "trainer.default_local_dir"), setting(config, "run_dir")
    if not isinstance(written, str):
        return run_dir / "checkpoints"
    within = isinstance(before, str) and Path(written).is_relative_to(before)
    return run_dir / Path(written).relative_to(before) if within else Path(written)


def steps(checkpoints: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first."""
    names = [path.name.removeprefix("global_step_") for path in checkpoints.glob("global_step_*")]
    return sorted(int(name) for name in names if name.isdecimal())


def latest(checkpoints: Path) -> int | None:
    """The step that a run goes on from: the tracker's, or where it names none that is there the last one, which a kill
    left between its two names; None: there is no checkpoint."""
    there = steps(checkpoints)
    try:
        named = int((checkpoints / TRACKER).read_text(encoding="ascii"))
    except (OSError, ValueError):
        named = -1
    return named if named in there else max(there, default=None)


def name_latest(checkpoints: Path, step: int) -> None:
    """Make a step the latest."""
    write_whole(checkpoints / TRACKER, str(step))


def is_of(checkpoint: Path, checkpoints: Path) -> bool:
    """Whether a checkpoint lies in a run's folder of checkpoints; it may be a link there."""
    return checkpoint.parent.resolve() == checkpoints.resolve()


def resumed_from(config: Any) -> Path | None:
    """The checkpoint that a start goes on from; None: it begins anew."""
    trainer, own = config.trainer, Path(str(config.trainer.default_local_dir))
    if trainer.resume_mode == "resume_path":
        return Path(str(trainer.resume_from_path))
    step = latest(own) if trainer.resume_mode == "auto" else None
    return None if step is None else own / f"global_step_{step}"


def run_before(config: Any, checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is of, which a start goes on from: its own, or another one's."""
    own = is_of(checkpoint, Path(config.trainer.default_local_dir))
    return Path(str(config.run_dir)) if own else checkpoint.parent.parent


# -- a checkpoint ------------------------------------------------------------------------------------------------------


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write SPIRAL's state into a checkpoint that is being written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE_FILE).write_text(json.dumps({"format": FORMAT, **state}, indent=1), encoding="utf-8")


def read_state(folder: Path) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint. Raises BrokenCheckpoint: there is none, it cannot be read, or it is of another
    form."""
    try:
        state = read_json(folder / STATE_FILE)
    except (OSError, ValueError) as error:
        raise BrokenCheckpoint(f"checkpoint {folder}: {STATE_FILE} cannot be read: {error}") from error
    if (form := state.get("format")) != FORMAT:
        reader = "version 0.2.0 reads it" if form is None else "a later version reads it"
        raise BrokenCheckpoint(f"checkpoint {folder}: is of format {form}, and this version reads {FORMAT}: {reader}")
    return state


def read_whole(folder: Path, parts: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint whose files, by the beginnings of their names, are as they were written; all are
    read. Raises BrokenCheckpoint."""
    state = read_state(folder)
    if wrong := changed_files(folder, parts) if (folder / MANIFEST).is_file() else [MANIFEST]:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise BrokenCheckpoint(
            f"checkpoint {folder}: missing, cut short or changed: {', '.join(wrong[:3])}{more}; restore it, or go on "
            "from an older one (trainer.resume_mode=resume_path trainer.resume_from_path=...)"
        )
    if folder.name != f"global_step_{state['step']}":
        raise BrokenCheckpoint(f"checkpoint {folder}: is of step {state['step']}")
    return state


def shard_file(folder: Path, ranks: int, rank: int) -> Path:
    """The file of a rank's part of the weights of a policy or its reference, as verl names it."""
    return folder / f"model_world_size_{ranks}_rank_{rank}.pt"
