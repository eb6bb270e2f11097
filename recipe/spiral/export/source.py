"""The checkpoint to export, and what is known of the run that wrote it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..storage.checkpoints import (
    CRITIC,
    REFERENCE,
    STATE_FILE,
    BrokenCheckpoint,
    changed,
    config_file,
    folder_of,
    latest,
    missing_parts,
    ranks_saved,
    read_state,
    steps,
)
from ..storage.run_config import load_config, setting

HUGGINGFACE = "actor/huggingface"
#: What an export takes of a checkpoint.
_READ = ("actor/model_*.pt", "actor/*.json", "actor/huggingface/*", STATE_FILE)
#: The same, with its reference policy.
_READ_REFERENCE = (*_READ, f"{REFERENCE}/*.pt")


class ExportError(ValueError):
    """The checkpoint cannot be exported as asked; the message says why and what to do. Nothing was written."""


@dataclass(frozen=True)
class Source:
    """A complete checkpoint, and what is known of its run.

    Attributes:
        folder: ``global_step_<step>``.
        ranks: the number of ranks that wrote it.
        run: the run's name.
        config: the run's composed config; empty if there is none.
        reference: the weights to export are the reference policy's.
    """

    folder: Path
    step: int
    ranks: int
    run: str
    config: DictConfig
    reference: bool = False

    @classmethod
    def find(cls, path: Path, step: int | None = None, reference: bool = False) -> Source:
        """The checkpoint at ``path``, or the latest one of the run there. Raises ExportError: there is none;
        BrokenCheckpoint: parts of it are missing."""
        path = path.expanduser().resolve()
        if not path.is_dir():
            raise ExportError(f"{path}: there is no such folder")
        folder = path if path.name.startswith("global_step_") else _of_run(path, step)
        number = folder.name.removeprefix("global_step_")
        if not number.isdecimal() or step not in (None, int(number)):
            raise ExportError(f"{folder}: must be a checkpoint's folder, global_step_{'<n>' if step is None else step}")
        if missing := _missing(folder):
            raise BrokenCheckpoint(
                f"checkpoint {folder} is not whole ({ranks_saved(folder)} rank(s)): missing or cut short: "
                f"{', '.join(missing)}"
            )
        if (of := read_state(folder).get("step")) != int(number):
            raise BrokenCheckpoint(f"checkpoint {folder}: damaged: {STATE_FILE}: is of step {of}")
        home = path if config_file(path).is_file() else folder.parents[1]
        file = config_file(home)
        try:
            config = load_config(file) if file.is_file() else OmegaConf.create()
        except (OSError, ValueError) as error:
            raise ExportError(f"{error}; restore it, or remove it to export without it") from error
        if reference and not (folder / REFERENCE).is_dir():
            raise ExportError(
                f"--reference: {folder} has no reference policy, which needs ref_update_freq in training; leave it out"
            )
        return cls(folder, int(number), ranks_saved(folder), home.name, config, reference)

    def check_files(self) -> None:
        """Check that no file is a link to somewhere else, and that the weights, which are read, are what was written.

        Raises:
            ExportError: a link would put a file into the export that is no part of the checkpoint.
            BrokenCheckpoint: weights are damaged.
        """
        own, read = self.folder.resolve(), _READ_REFERENCE if self.reference else _READ
        parts = ("actor", REFERENCE) if self.reference else ("actor",)
        files = [file for part in parts for file in sorted(self.folder.glob(f"{part}/**/*"))]
        for file in (self.folder / STATE_FILE, *files):
            if not file.resolve().is_relative_to(own):
                raise ExportError(f"{file}: is a link out of the checkpoint; put the file itself there, or remove it")
        if broken := changed(self.folder, read):
            raise BrokenCheckpoint(
                f"checkpoint {self.folder}: damaged: {', '.join(broken)}: restore it, or export another one"
            )

    @property
    def huggingface(self) -> Path:
        return self.folder / HUGGINGFACE

    def setting(self, key: str) -> Any:
        """A value of the run's config; None if it is not known."""
        return setting(self.config, key)

    def games(self) -> list[str]:
        """The ids of the run's games, from its config or else from its baselines."""
        if isinstance(games := self.setting("games"), list) and games:
            return [str(game["id"] if isinstance(game, dict) and "id" in game else game) for game in games]
        try:
            return sorted({str(game) for game, *_ in read_state(self.folder)["baselines"]["values"]})
        except (KeyError, TypeError, ValueError):  # a checkpoint of another program, or a damaged one
            return []

    def hub_id(self) -> str | None:
        """The name on the hub of the model that the training began with; None if it has none."""
        path = self.setting("actor_rollout_ref.model.path")
        is_id = isinstance(path, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) and not Path(path).exists()
        return path if is_id else None


def _of_run(run: Path, step: int | None) -> Path:
    """The folder of a run's checkpoint: of ``step``, or else of the latest."""
    checkpoints = folder if (folder := folder_of(run)).is_dir() else run
    known = steps(checkpoints)
    number = latest(checkpoints) if step is None else step
    if number is None:  # no tracker names one
        number = max(known, default=None)
    if number not in known:
        of_step = "" if number is None else f" of step {number}"
        there = ", ".join(map(str, known)) or "none"
        raise ExportError(f"{checkpoints}: there is no checkpoint (global_step_<n>){of_step}; there are: {there}")
    return checkpoints / f"global_step_{number}"


def _missing(folder: Path) -> list[str]:
    """The missing parts that an export needs. It needs no critic."""
    parts = [part for part in missing_parts(folder, ranks_saved(folder)) if not part.startswith(f"{CRITIC}/")]
    texts = [f"{HUGGINGFACE}/{name}" for name in ("config.json", "tokenizer_config.json")]
    return parts + [name for name in texts if not (folder / name).is_file()]
