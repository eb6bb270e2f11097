"""SPIRAL's own part of a checkpoint, and whether a checkpoint is whole.

A checkpoint is a folder ``global_step_N/``; a tracker file names the latest N. SPIRAL adds to the folder
``spiral.json``, ``ref/`` (with ``ref_update_freq``) and ``pool/`` (the members of a pool). In the asynchronous modes
verl adds ``transfer_queue/``, which holds the games in flight. The manifest makes all of them one object: it has their
digests, so that nothing in it can be of another step.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from .disk import read_json, write_whole
from .manifest import MANIFEST, changed_files, changed_member, checksums_hold, read_manifest, write_digests
from .run_config import load_config, setting

STATE_FILE = "spiral.json"
REFERENCE = "ref"
QUEUE = "transfer_queue"
#: What TransferQueue writes last when it saves the games in flight.
IN_FLIGHT = f"{QUEUE}/metadata.json"
POOL = "pool"
#: This file in a checkpoint's ``pool/`` says that the members were copied, not linked.
COPIED = ".copied"
CRITIC = "critic"
#: The config of a run's last start, in its folder.
CONFIG = "config.yaml"
EXPORTED = "spiral.yaml"
TRACKER = "latest_checkpointed_iteration.txt"
#: Names the run that a folder of checkpoints outside of a run's folder is of.
OWNER = "run_dir.txt"
#: Where a start puts what it does not go on with, as ``time.strftime`` takes it.
EARLIER = "earlier-%Y%m%d-%H%M%S"
#: Is there while a checkpoint is written.
UNFINISHED = "unfinished"
_AFRESH = "start afresh with trainer.resume_mode=disable, or with another run_dir"


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


def owner_of(checkpoints: Path) -> Path | None:
    """The folder of the run that a folder of checkpoints is of; None: nothing there says so."""
    with suppress(OSError, ValueError):
        return Path((checkpoints / OWNER).read_text(encoding="utf-8"))
    run_dir = checkpoints.resolve().parent
    return run_dir if config_of(run_dir) is not None and is_of(checkpoints / TRACKER, folder_of(run_dir)) else None


def resumed_from(config: Any) -> Path | None:
    """The checkpoint that a start goes on from, as verl finds it; None: it begins anew."""
    trainer, own = config.trainer, Path(str(config.trainer.default_local_dir))
    if trainer.resume_mode == "resume_path":
        return Path(str(trainer.resume_from_path))
    step = latest(own) if trainer.resume_mode == "auto" else None
    return None if step is None else own / f"global_step_{step}"


def run_before(config: Any, checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is of, which a start goes on from: its own, or another one's."""
    own = is_of(checkpoint, Path(config.trainer.default_local_dir))
    return Path(str(config.run_dir)) if own else checkpoint.parent.parent


class BrokenCheckpoint(ValueError):
    """A checkpoint cannot be resumed from; the message says what is missing and what to do."""


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write SPIRAL's state into a checkpoint folder, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / STATE_FILE, json.dumps(state, indent=1))


def read_state(folder: Path) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint folder. Raises BrokenCheckpoint: there is none, or it cannot be read."""
    file = folder / STATE_FILE
    try:
        return read_json(file)
    except (OSError, ValueError) as error:
        raise BrokenCheckpoint(f"{file}: {str(error).removeprefix(f'{file}: ')}") from error


def reference_file(folder: Path, ranks: int, rank: int) -> Path:
    """The file of a rank's shard of the reference policy, named as verl names the actor's."""
    return folder / f"model_world_size_{ranks}_rank_{rank}.pt"


def ranks_saved(folder: Path) -> int:
    """The number of ranks that wrote a checkpoint, from verl's note, or else from the files' names."""
    try:
        ranks = int(read_json(folder / "actor" / "fsdp_config.json")["world_size"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        names = (re.search(r"_world_size_(\d+)_rank_", file.name) for file in folder.glob("actor/*.pt"))
        ranks = max((int(name[1]) for name in names if name), default=1)
    return max(1, ranks)


def missing_parts(folder: Path, ranks: int, critic: bool = False) -> list[str]:
    """The files that a checkpoint of so many workers lacks, or that are cut short; [] if it is complete. With
    ``critic`` it must have one; a checkpoint that was saved with a critic must have it in any case."""
    parts = [STATE_FILE, "data.pt"]
    for worker in ("actor", CRITIC) if critic or says(folder, "critic") else ("actor",):
        for kind in ("model", "optim", "extra_state"):
            parts += [f"{worker}/{kind}_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks)]
    if says(folder, "asynchronous"):
        parts.append(IN_FLIGHT)
    if says(folder, "manifest"):
        parts.append(MANIFEST)
    if (folder / REFERENCE).is_dir():
        parts += [str(reference_file(Path(REFERENCE), ranks, rank)) for rank in range(ranks)]
    broken = torn(folder)
    return [part for part in parts if part in broken or not (folder / part).is_file()]


def says(folder: Path, what: str) -> bool:
    """Whether a checkpoint's state names something as so: that it has a critic; one that cannot be read does not."""
    try:
        return bool(read_state(folder).get(what))
    except BrokenCheckpoint:
        return False


def torn(folder: Path) -> list[str]:
    """The files in a checkpoint that are empty or cut short; with its state, if that cannot be read.

    torch's files are zip archives, whose directory comes last, so a truncated file has none.
    """
    files = [file for file in (*folder.glob("*.pt"), *folder.glob("*/*.pt")) if not zipfile.is_zipfile(file)]
    try:
        read_state(folder)
    except BrokenCheckpoint:
        files.append(folder / STATE_FILE)
    return sorted(str(file.relative_to(folder)) for file in files)


def seal(folder: Path) -> None:
    """Write the manifest of a checkpoint that is complete. A member of its pool has one itself, whose digest counts."""
    write_digests(folder, _files(folder))


def _files(folder: Path) -> list[str]:
    """The names of a checkpoint's files, in order, of its pool's members only their manifests; no hidden ones."""
    names = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file() or file.is_symlink())
    return sorted(
        name.as_posix()
        for name in names
        if str(name) != MANIFEST
        and not any(part.startswith(".") for part in name.parts)
        and (name.parts[0] != POOL or name.name == MANIFEST)
    )


def _is_one(file: Path, patterns: tuple[str, ...]) -> bool:
    return any(map(file.match, patterns))


def changed(folder: Path, only: tuple[str, ...] = ()) -> list[str]:
    """The files of a checkpoint that are not what was written with it, its pool's members included: torch loads a
    flipped bit without a word. All are read, so this is for the moment before they are loaded.

    Checkpoints of version 0.1.0 have no manifest: torch's own checksums count, and the digests of the queue.

    ``only``: patterns of the names that are looked at, without members; (): all of them.
    """
    patterns = only or ("*",)
    if not os.path.lexists(folder / MANIFEST):
        files = [name for name in _files(folder) if name.endswith(".pt") and _is_one(folder / name, patterns)]
        with ThreadPoolExecutor() as threads:
            intact = threads.map(checksums_hold, [folder / name for name in files])
        queue = [] if only else [f"{QUEUE}/{name}" for name in changed_files(folder / QUEUE)]
        return [*(name for name, good in zip(files, intact, strict=True) if not good), *queue]
    wrong = changed_files(folder, ours=True, only=patterns)
    known = read_manifest(folder) or {}
    wrong += [name for name in _files(folder) if name not in known and _is_one(folder / name, patterns)]
    members = [member for member in sorted(folder.glob(f"{POOL}/*")) if member.is_dir()]
    there = [f"{POOL}/{member.name}" for member in members]
    # one whose folder is not there is named when the pool is restored
    wrong = [name for name in wrong if not name.startswith(f"{POOL}/") or str(Path(name).parent) in there]
    if not only:
        wrong += [f"{POOL}/{member.name}/{name}" for member in members for name in changed_member(member)]
    return sorted(set(wrong))


def steps(checkpoints: Path) -> list[int]:
    """The steps that have a folder, oldest first."""
    names = [path.name.removeprefix("global_step_") for path in checkpoints.glob("global_step_*")]
    return sorted(int(name) for name in names if name.isdecimal())


def latest(checkpoints: Path) -> int | None:
    """The step that the tracker names; None if there is no tracker, or it cannot be read. A kill in a run's first save
    may leave a checkpoint that is whole, and not named yet."""
    tracker = checkpoints / TRACKER
    if not os.path.lexists(tracker) and (checkpoints / UNFINISHED).is_dir():
        folders = {step: checkpoints / f"global_step_{step}" for step in steps(checkpoints)}
        return max((step for step, at in folders.items() if not missing_parts(at, ranks_saved(at))), default=None)
    try:
        text = tracker.read_text(encoding="ascii").strip()
        return int(text) if text.isdecimal() else None
    except (OSError, ValueError):
        return None


def name_latest(checkpoints: Path, step: int) -> None:
    """Make a step the latest."""
    write_whole(checkpoints / TRACKER, str(step))


def is_of(checkpoint: Path, checkpoints: Path) -> bool:
    """Whether a checkpoint lies in a run's folder of checkpoints; it may be a link there."""
    return checkpoint.parent.resolve() == checkpoints.resolve()


def check_intact(folder: Path, ranks: int, critic: bool = False) -> None:
    """Check that a checkpoint can be resumed from, its weights included. Raises BrokenCheckpoint: it cannot; the
    message names what is wrong, and an older checkpoint that is whole."""
    noted = ("actor/fsdp_config.json",)
    if folder.is_dir() and (before := ranks_saved(folder)) != ranks and not changed(folder, noted):
        raise BrokenCheckpoint(
            f"trainer.n_gpus_per_node x trainer.nnodes={ranks}: cannot go on from {folder}, which was written by "
            f"{before} rank(s); take as many, or {_AFRESH}"
        )
    if not (wrong := _wrong(folder, ranks, critic)):
        return
    before = int(folder.name.removeprefix("global_step_"))
    older = [folder.with_name(f"global_step_{step}") for step in reversed(steps(folder.parent)) if step < before]
    whole = next((other for other in older if not _wrong(other, ranks, critic)), None)
    instead = _AFRESH
    if whole is not None:
        instead = f"go on from step {whole.name.removeprefix('global_step_')} with trainer.resume_mode=resume_path "
        instead += f"trainer.resume_from_path={whole}"
    raise BrokenCheckpoint(f"checkpoint {folder} is not whole ({ranks} rank(s)): {wrong}. Restore it, or {instead}")


def _wrong(folder: Path, ranks: int, critic: bool) -> str:
    """What keeps a checkpoint from being resumed; "" if nothing does."""
    if missing := missing_parts(folder, ranks, critic):
        return f"missing or cut short: {_named(missing)}"
    if (step := read_state(folder).get("step")) != int(folder.name.removeprefix("global_step_")):
        return f"damaged: {STATE_FILE}: is of step {step}"
    if broken := changed(folder):
        return f"damaged: {_named(broken)}"
    return ""


def _named(files: list[str]) -> str:
    return f"{', '.join(files[:3])}{' ...' * (len(files) > 3)}"


def check_resumable(checkpoints: Path, ranks: int, critic: bool = False, reached: int = 0) -> int | None:
    """The step that a run with these checkpoints goes on from; None for a fresh start.

    Args:
        reached: the last step of which the run has metrics: a run that went back has none of later checkpoints.

    Raises:
        BrokenCheckpoint: the latest checkpoint is not whole; nothing names it, and checkpoints are there; or what is
            named is older than a whole one, whose games a start would remove.
    """
    if (step := latest(checkpoints)) is None:
        check_none(checkpoints)
        return None
    folder = checkpoints / f"global_step_{step}"
    check_intact(folder, ranks, critic)
    newer = [folder.with_name(f"global_step_{later}") for later in steps(checkpoints) if step < later <= reached]
    if newer and not (checkpoints / UNFINISHED).is_dir() and not _wrong(newer[-1], ranks, critic):
        resume = "trainer.resume_mode=resume_path trainer.resume_from_path="
        raise BrokenCheckpoint(
            f"{checkpoints / TRACKER}: names step {step}, and {newer[-1].name} beside it is whole: to go on from "
            f"there, take {resume}{newer[-1]}; to go back, and remove the games after step {step}, {resume}{folder}"
        )
    return step


def check_none(checkpoints: Path) -> None:
    """Check that a run which begins anew in a folder leaves no whole checkpoint there behind that nothing names.

    Raises:
        BrokenCheckpoint: it would; the message says how to go on from it.
    """
    tracker = checkpoints / TRACKER
    folders = [checkpoints / f"global_step_{step}" for step in reversed(steps(checkpoints))]
    whole = next((folder for folder in folders if not _wrong(folder, ranks_saved(folder), critic=False)), None)
    if whole is not None:
        step = whole.name.removeprefix("global_step_")
        raise BrokenCheckpoint(
            f"{tracker}: names no checkpoint, and {whole.name} beside it is whole: to go on from there, write {step} "
            f"into that file; or {_AFRESH}"
        )
    if os.path.lexists(tracker):
        raise BrokenCheckpoint(f"{tracker}: names no checkpoint, and none beside it is whole: {_AFRESH}")
