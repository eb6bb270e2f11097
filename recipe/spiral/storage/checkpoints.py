"""SPIRAL's own part of a checkpoint, and whether a checkpoint is whole.

A checkpoint is a folder ``global_step_N/``; a tracker file names the latest N. SPIRAL adds to the folder
``spiral.json``, ``ref/`` (with ``ref_update_freq``) and ``pool/`` (the members of a pool).
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from .disk import write_whole
from .renamed import load_config

STATE_FILE = "spiral.json"
REFERENCE = "ref"
POOL = "pool"
#: This file in a checkpoint's ``pool/`` says that the members were copied, not linked.
COPIED = ".copied"
CRITIC = "critic"
#: The config of a run's last start, in its folder.
CONFIG = "config.yaml"
TRACKER = "latest_checkpointed_iteration.txt"


def config_file(run_dir: Path) -> Path:
    """The config of a run's last start; runs of the first versions have only Hydra's."""
    ours = run_dir / CONFIG
    return ours if ours.is_file() else run_dir / ".hydra" / "config.yaml"


def folder_of(run_dir: Path) -> Path:
    """The folder of a run's checkpoints, by its config: ``trainer.default_local_dir``.

    If the run's folder was moved, a folder inside it moved along. Without a config it is ``checkpoints`` in the run's.
    """
    usual = run_dir / "checkpoints"
    try:
        config = load_config(config_file(run_dir))
        written = OmegaConf.select(config, "trainer.default_local_dir")
        before = OmegaConf.select(config, "run_dir")
    except (OSError, ValueError, YAMLError, OmegaConfBaseException):
        return usual
    if not isinstance(written, str):
        return usual
    within = isinstance(before, str) and Path(written).is_relative_to(before)
    return run_dir / Path(written).relative_to(before) if within else Path(written)


class BrokenCheckpoint(ValueError):
    """A checkpoint cannot be resumed from; the message says what is missing and what to do."""


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write SPIRAL's state into a checkpoint folder, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / STATE_FILE, json.dumps(state, indent=1))


def read_state(folder: Path) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint folder.

    Raises:
        BrokenCheckpoint: there is none, or it cannot be read.
    """
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenCheckpoint(f"{folder / STATE_FILE}: {error}") from error
    return state


def reference_file(folder: Path, ranks: int, rank: int) -> Path:
    """The file of a rank's shard of the reference policy, named as verl names the actor's."""
    return folder / f"model_world_size_{ranks}_rank_{rank}.pt"


def missing_parts(folder: Path, ranks: int, critic: bool = False) -> list[str]:
    """The files that a checkpoint lacks, or that are cut short; [] if it is complete.

    Args:
        folder: the checkpoint's.
        ranks: how many workers wrote it.
        critic: whether it must have a critic. One that was saved with a critic must have it in any case.
    """
    parts = [STATE_FILE, "data.pt"]
    for worker in ("actor", CRITIC) if critic or _had_critic(folder) else ("actor",):
        for kind in ("model", "optim", "extra_state"):
            parts += [f"{worker}/{kind}_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks)]
    if (folder / REFERENCE).is_dir():
        parts += [str(reference_file(Path(REFERENCE), ranks, rank)) for rank in range(ranks)]
    broken = torn(folder)
    return [part for part in parts if part in broken or not (folder / part).is_file()]


def _had_critic(folder: Path) -> bool:
    """By its state; in checkpoints of the first versions, by the folder."""
    try:
        return bool(read_state(folder).get("critic")) or (folder / CRITIC).is_dir()
    except BrokenCheckpoint:
        return (folder / CRITIC).is_dir()


def torn(folder: Path) -> list[str]:
    """The files in a checkpoint that are empty or cut short.

    torch's files are zip archives, whose directory comes last, so a truncated file has none.
    """
    files = sorted([*folder.glob("*.pt"), *folder.glob("*/*.pt"), *folder.glob(STATE_FILE)])
    return [str(file.relative_to(folder)) for file in files if not _readable(file)]


def _readable(file: Path) -> bool:
    if file.name == STATE_FILE:
        return file.stat().st_size > 0
    try:
        with zipfile.ZipFile(file) as archive:
            return bool(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def steps(checkpoints: Path) -> list[int]:
    """The steps that have a folder, oldest first."""
    names = [path.name.removeprefix("global_step_") for path in checkpoints.glob("global_step_*")]
    return sorted(int(name) for name in names if name.isdecimal())


def latest(checkpoints: Path) -> int | None:
    """The step that the tracker names; None if there is no tracker, or it cannot be read."""
    tracker = checkpoints / TRACKER
    text = tracker.read_text(encoding="utf-8").strip() if tracker.is_file() else ""
    return int(text) if text.isdecimal() else None


def name_latest(checkpoints: Path, step: int) -> None:
    """Make a step the latest."""
    write_whole(checkpoints / TRACKER, str(step))


def check_resumable(checkpoints: Path, ranks: int, critic: bool = False) -> int | None:
    """The step that a run with these checkpoints goes on from; None for a fresh start.

    If a kill left the tracker file empty, it is written again.

    Raises:
        BrokenCheckpoint: the latest checkpoint is not whole.
    """
    tracker = checkpoints / TRACKER
    if not tracker.is_file():
        return None
    folders = {step: checkpoints / f"global_step_{step}" for step in steps(checkpoints)}
    whole = [step for step, folder in folders.items() if not missing_parts(folder, ranks, critic)]
    step = latest(checkpoints)
    if step is None:
        if not whole:
            raise BrokenCheckpoint(
                f"{tracker} is unreadable and no whole checkpoint lies beside it: start afresh with "
                "trainer.resume_mode=disable, or with another run_dir"
            )
        name_latest(checkpoints, whole[-1])
        return whole[-1]
    missing = missing_parts(checkpoints / f"global_step_{step}", ranks, critic)
    if missing:
        older = [s for s in whole if s < step]
        instead = (
            f"go on from step {older[-1]} with trainer.resume_mode=resume_path "
            f"trainer.resume_from_path={checkpoints / f'global_step_{older[-1]}'}"
            if older
            else "start afresh with trainer.resume_mode=disable, or with another run_dir"
        )
        raise BrokenCheckpoint(
            f"checkpoint {checkpoints / f'global_step_{step}'} is not whole ({ranks} rank(s)): missing or cut short: "
            f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}. Restore it, or {instead}"
        )
    return step
