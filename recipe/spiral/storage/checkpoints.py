"""A run's checkpoints: where they lie, how one is written so that the latest is always whole, and how it is read.

A checkpoint is a folder ``global_step_N/``: verl's files of the policy, the critic and the dataset's place, and with
games in flight ``transfer_queue/``; ours are ``spiral.json``, ``ref/`` (with ``ref_update_freq``) and ``pool/``. Its
manifest has all of them.

verl writes into a checkpoint's final folder, names it in place, and removes an older one before that. Here each save
has a new folder, which is sealed and flushed before it gets a checkpoint's name; then the tracker file names its step.
So a kill at any moment leaves what the tracker names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from .disk import discard, flush, read_json, whole_folder, write_whole
from .manifest import MANIFEST, changed_files, read_manifest, write_manifest
from .run_files import config_of, setting

#: The form of checkpoints. Version 0.2.0 and earlier ones wrote no number.
FORMAT = 1
STATE_FILE = "spiral.json"
REFERENCE = "ref"
POOL = "pool"
TRACKER = "latest_checkpointed_iteration.txt"
#: Where a start puts what it does not go on with, as ``time.strftime`` takes it.
EARLIER = "earlier-%Y%m%d-%H%M%S"


# -- where they are ----------------------------------------------------------------------------------------------------


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


def config_before(config: Any, checkpoint: Path) -> DictConfig | None:
    """The config of the last start of the run that a checkpoint is of: a start's own run, or another one."""
    own = is_of(checkpoint, Path(config.trainer.default_local_dir))
    return config_of(Path(str(config.run_dir)) if own else checkpoint.parent.parent)


def kept_settings(config: DictConfig) -> dict[str, Any]:
    """The settings that a resumed run must have in common with its checkpoint, as JSON has them.

    With another value the run would go on, and train silently wrong: games would be drawn with keys that were played,
    advantages compared with other baselines, weights added to another model. All other settings are the start's; of the
    optimizer's, whose state a checkpoint holds, too (``workers/mini_batch_worker.py``).

    With games in flight, which are played on, their opponents must be there.
    """
    asynchronous = config.trainer.v1.trainer_mode != "sync"
    model = config.actor_rollout_ref.model
    return {
        "seed": config.seed,
        "trainer.v1.trainer_mode": "asynchronous" if asynchronous else "sync",
        "batch_unit": config.batch_unit,
        # in sync mode a game of a batch of turns gets its number when it is launched
        "data.train_batch_size": config.data.train_batch_size if asynchronous or config.batch_unit == "games" else None,
        "actor_rollout_ref.model.path": model.path,
        "actor_rollout_ref.model.lora_alpha": model.lora_alpha if model.lora_rank else None,
        "algorithm.rae": OmegaConf.to_container(config.algorithm.rae, resolve=True),
        "fsp.enabled": config.fsp.enabled if asynchronous else None,
        "opponents": sorted(who.get("name") or who.kind for who in config.opponents if who.get("share"))
        if asynchronous
        else None,
    }


def shard_file(folder: Path, ranks: int, rank: int) -> Path:
    """The file of a rank's part of the weights of a policy or its reference, as verl names it."""
    return folder / f"model_world_size_{ranks}_rank_{rank}.pt"


# -- reading -----------------------------------------------------------------------------------------------------------


def read_state(folder: Path) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint. Raises ValueError: there is none, it cannot be read, or it is of another
    form."""
    try:
        state = read_json(folder / STATE_FILE)
    except (OSError, ValueError) as error:
        raise ValueError(f"checkpoint {folder}: {STATE_FILE} cannot be read: {error}") from error
    if (form := state.get("format")) != FORMAT:
        reader = "version 0.2.0 reads it" if form is None else "a later version reads it"
        raise ValueError(f"checkpoint {folder}: is of format {form}, and this version reads {FORMAT}: {reader}")
    return state


def read_whole(folder: Path, parts: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """SPIRAL's state in a checkpoint whose files, by the beginnings of their names, are as they were written; all are
    read. Raises ValueError: they are not."""
    state = read_state(folder)
    if wrong := changed_files(folder, parts) if (folder / MANIFEST).is_file() else [MANIFEST]:
        raise ValueError(
            f"checkpoint {folder}: missing, cut short or changed: {', '.join(wrong[:3])}; restore it, or go on from an "
            "older one (trainer.resume_mode=resume_path trainer.resume_from_path=...)"
        )
    if folder.name != f"global_step_{state['step']}":
        raise ValueError(f"checkpoint {folder}: is of step {state['step']}")
    return state


# -- writing -----------------------------------------------------------------------------------------------------------


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write SPIRAL's state into a checkpoint that is being written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE_FILE).write_text(json.dumps({"format": FORMAT, **state}, indent=1), encoding="utf-8")


def seal(folder: Path) -> None:
    """Write the manifest of a checkpoint that is complete, and wait until all of it is on the disk. The pool's members
    have manifests, whose digests count: they were read when they were written."""
    members = {f"{POOL}/{member.name}": read_manifest(member) or {} for member in folder.glob(f"{POOL}/*")}
    known = {f"{member}/{name}": entry for member, entries in members.items() for name, entry in entries.items()}
    write_manifest(folder, known)
    flush(folder)


@dataclass
class CheckpointFolder:
    """A run's checkpoints: ``global_step_N/`` and the tracker file. The trainer and every worker must see the folder.

    Attributes:
        path: the folder.
        ranks: how many workers a checkpoint is of.
        keep: how many checkpoints stay; None or 0: all.
        spare: a checkpoint that is never removed: the one that the run was told to go on from.
        say: shows people a line.
    """

    path: Path
    ranks: int
    keep: int | None = None
    spare: Path | None = None
    say: Callable[[str], None] = print

    def folder(self, step: int) -> Path:
        return self.path / f"global_step_{step}"

    def clear(self) -> None:
        """Remove what a kill left, and name the latest checkpoint, as verl looks for its name."""
        for left in self.path.glob(".global_step_*"):
            discard(left, self.say)
        if (step := latest(self.path)) is not None:
            name_latest(self.path, step)

    def go_back(self, step: int) -> list[Path]:
        """Name a step as the latest, before what was written after it is removed. Otherwise a start after a kill would
        go on from a later checkpoint, whose games are gone. Those are put aside, and returned."""
        name_latest(self.path, step)
        later, aside = [s for s in steps(self.path) if s > step], self.path / time.strftime(EARLIER)
        if later:
            aside.mkdir(exist_ok=True)
        return [folder.rename(aside / folder.name) for folder in map(self.folder, later)]

    @contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """The block fills the folder that it is given, which is called ``global_step_<step>`` and lies by itself in
        another one; then it is the latest checkpoint.

        Raises:
            RuntimeError: files of ranks did not come.
        """
        self._prune(1)  # the disk need not have room for one more
        with whole_folder(self.folder(step)) as new:
            yield new
            for rank in range(self.ranks):
                if not shard_file(new / "actor", self.ranks, rank).is_file():
                    raise RuntimeError(
                        f"checkpoint of step {step}: the weights of rank {rank} did not come: "
                        f"trainer.default_local_dir={self.path} must be a folder that all machines share"
                    )
            seal(new)
        name_latest(self.path, step)
        self._prune()

    def _prune(self, room: int = 0) -> None:
        """Remove the oldest checkpoints until no more are there than stay, less ``room``; never the latest one."""
        if not self.keep:
            return
        there, named = steps(self.path), latest(self.path)
        spared = self.spare and self.spare.resolve()
        for step in there[: max(len(there) + room - self.keep, 0)]:
            if step != named and self.folder(step).resolve() != spared:
                discard(self.folder(step), self.say)
