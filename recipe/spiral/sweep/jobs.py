"""A job of a sweep, and its state, which is kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ..storage.disk import write_whole

#: In a job's folder: the file with what it printed, and the file with its state.
OUTPUT = "output.txt"
STATE = "job.json"

#: "stopped": by the guard (``guard.action=stop``).
Status = Literal["waiting", "running", "ok", "stopped", "failed", "interrupted"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        name: its folder's, made of what is swept.
        folder: its ``run_dir``.
        swept: the overrides in which it differs from the others, by key.
        arguments: what the entry point is started with.
        config: a digest of the composed config, by which a second start recognises a job that is done.
        devices: how many accelerators it takes; 0 on a CPU.
    """

    name: str
    folder: Path
    swept: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    config: str = ""
    devices: int = 0


@dataclass
class State:
    """The state of a job, which is kept in its folder."""

    status: Status = "waiting"
    message: str = ""
    steps: int = 0
    seconds: float = 0.0
    config: str = ""

    @classmethod
    def read(cls, folder: Path) -> State:
        try:
            return cls(**json.loads((folder / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, folder: Path) -> None:
        write_whole(folder / STATE, json.dumps(asdict(self), indent=1) + "\n")
