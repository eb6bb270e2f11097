"""The policies at a path: those of a run, a folder of exports, any Hugging Face folder or adapter.

``form_of`` says what a folder is, and ``members_of`` lists the policies that a path holds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from ...opponents import model_files
from ...players.seats import BASE
from ...storage.checkpoints import POOL, folder_of, read_whole

#: A whole model, a PEFT adapter, or a checkpoint of ours, which is exported first.
Form = Literal["hf", "adapter", "checkpoint"]
_NUMBER = re.compile(r"\d+$")
_CHECKPOINT = re.compile(r"global_step_\d+")


def form_of(folder: Path) -> Form | None:
    """What a folder is, by the names in it; None: it cannot be a member. Whether its files are whole is not checked."""
    if _CHECKPOINT.fullmatch(folder.name) and (folder / "actor").is_dir():
        return "checkpoint"
    return model_files.form_of(folder)


def members_of(
    path: Path, start: int = 0, interval: int = 1, size: int | None = None, setting: str = "path"
) -> list[tuple[int, Path, Form]]:
    """The members of a pool from elsewhere, in the order of their steps.

    Args:
        path: a run (its checkpoints are taken, or else its pool), a folder of checkpoints, of exports or of other
            Hugging Face folders or adapters, or one such folder.
        start: the first step that is taken.
        interval: after each that is taken, the next is at least so many steps later.
        size: how many are taken, from the first on; None: all.
        setting: what ``path`` is called in the config, for messages.

    Returns:
        (step, folder, form). The step is the number in which a folder's name ends, ``base`` is 0; where other names
        have none, folders are counted by their names, from 0.

    Raises:
        ValueError: there is nothing to take, or something that is taken is not whole.
    """
    path = path.expanduser().absolute()
    if not path.is_dir():
        raise ValueError(f"{setting}={path}: there is no such folder")
    members = _numbered(_candidates(path))
    if not members:
        raise ValueError(
            f"{setting}={path}: holds nothing to play against; must be a run, a checkpoint (global_step_N), a model "
            "(config.json with *.safetensors), a PEFT adapter, or a folder of them"
        )
    taken: list[tuple[int, Path, Form]] = []
    for step, folder, form in members:
        if step >= start and (not taken or step >= taken[-1][0] + interval) and (size is None or len(taken) < size):
            taken.append((step, folder, form))
    if not taken:
        raise ValueError(f"{setting}={path}: has none of step {start} or later; its last is of step {members[-1][0]}")
    for _, folder, form in taken:
        if form == "checkpoint":
            read_whole(folder)
        else:
            model_files.check_whole(folder, setting)
    return taken


def _candidates(path: Path) -> list[tuple[Path, Form]]:
    """The members that are at a path, or in it."""
    if (form := form_of(path)) is not None:
        return [(path, form)]
    for folder in (folder_of(path), path, path / POOL):
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        shown = [sub for sub in inside if sub.is_dir() and not sub.name.startswith((".", "unfinished"))]
        if candidates := [(sub, form) for sub in shown if (form := form_of(sub)) is not None]:
            return candidates
    return []


def _numbered(candidates: list[tuple[Path, Form]]) -> list[tuple[int, Path, Form]]:
    """Each with the number in which its name ends; where other names have none, counted in their order."""
    numbers = ["0" if folder.name == BASE else "".join(_NUMBER.findall(folder.name)) for folder, _ in candidates]
    if len(candidates) > 1 and not all(numbers):
        numbers = list(map(str, range(len(candidates))))
    numbered = [(int(number or 0), folder, form) for number, (folder, form) in zip(numbers, candidates, strict=True)]
    return sorted(numbered, key=lambda member: (member[0], member[1].name))
