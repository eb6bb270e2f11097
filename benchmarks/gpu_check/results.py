"""The folder of a check: a result and a log for each stage, and the report of all of them.

A stage's result is written when the stage has ended, so that after a kill the next call knows what is done. Nothing
gets here that was not masked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .masking import Masker
from .probe import ENDED, FAILED, PASSED, SKIPPED
from .report import page
from .stages import Stage

JSON, PAGE = "gpu_report.json", "gpu_report.md"


class NotOurs(ValueError):
    """The folder holds something else, or results for another device."""


@dataclass
class Result:
    """How a stage ended: its status, the line that a person should read, the exit status of its process (negative: the
    signal that ended it), seconds, checks, figures, and of one that failed or was ended the log's last lines."""

    name: str
    device: str
    status: str
    line: str
    exit: int
    seconds: float
    checks: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


class Results:
    """The folder's files. NotOurs if it has other ones."""

    def __init__(self, folder: Path, device: str, masker: Masker, stages: Sequence[Stage]) -> None:
        self.folder, self.device, self.masker, self.stages = folder, device, masker, stages
        if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / "stages").is_dir())):
            raise NotOurs(f"--folder {folder}: holds something else; give a new folder")
        for part in ("stages", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        if others := {result.device for result in self.all()} - {device}:
            raise NotOurs(f"{folder} has results for --device {others.pop()}: give another --folder")

    def all(self) -> list[Result]:
        """The results that are there, in the stages' order."""
        return [result for stage in self.stages if (result := self.read(stage.name)) is not None]

    def read(self, stage: str) -> Result | None:
        file = self._file(stage)
        return Result(**json.loads(file.read_bytes())) if file.is_file() else None

    def forget(self, stage: str) -> None:
        """Remove a stage's result, before it runs again."""
        self._file(stage).unlink(missing_ok=True)

    def log(self, stage: str) -> Path:
        return self.folder / "logs" / f"{stage}.log"

    def write(self, result: Result) -> Result:
        """Keep a stage's result and renew the report; returns the result as it was masked."""
        masked = Result(**self.masker.all(asdict(result)))
        self._write(self._file(result.name), json.dumps(asdict(masked), indent=1))
        results = [asdict(one) for one in self.all()]
        counts = {s: sum(one["status"] == s for one in results) for s in (PASSED, FAILED, SKIPPED, ENDED)}
        content = {
            "format": 1,
            "device": self.device,
            "summary": {**counts, "not run": len(self.stages) - len(results)},
            "about": {stage.name: stage.about for stage in self.stages},
            "stages": results,
        }
        self._write(self.folder / JSON, json.dumps(content, indent=1))
        self._write(self.folder / PAGE, page(content))
        return masked

    def _file(self, stage: str) -> Path:
        return self.folder / "stages" / f"{stage}.json"

    @staticmethod
    def _write(file: Path, text: str) -> None:
        """Whole or not at all."""
        file.with_suffix(".new").write_text(text, encoding="utf-8")
        file.with_suffix(".new").replace(file)
