"""The folder of a check: a result and a log for each stage, and the report of all of them.

A stage's result is written when the stage has ended, so that after a kill the next call knows what is done. Nothing
stays here that was not masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .masking import Masker
from .probe import ENDED, FAILED, PASSED, SKIPPED
from .stages import Stage

JSON, PAGE = "gpu_report.json", "gpu_report.md"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


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
        file = self.folder / "stages" / f"{stage}.json"
        return Result(**json.loads(file.read_bytes())) if file.is_file() else None

    def forget(self, stage: str) -> None:
        """Remove a stage's result, before it runs again."""
        (self.folder / "stages" / f"{stage}.json").unlink(missing_ok=True)

    def masked_log(self, raw: Path, log: Path) -> list[str]:
        """Write a stage's log; returns its lines."""
        text = _COLOURS.sub("", raw.read_text(encoding="utf-8", errors="replace"))
        lines = [self.masker(line.rsplit("\r", 1)[-1]) for line in text.split("\n") if line.strip()]
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return lines

    def write(self, result: Result) -> Result:
        """Keep a stage's result and renew the report; returns the result as it was masked."""
        masked = Result(**self.masker.all(asdict(result)))
        self._write(f"stages/{result.name}.json", json.dumps(asdict(masked), indent=1))
        results = [asdict(one) for one in self.all()]
        counts = {s: sum(one["status"] == s for one in results) for s in (PASSED, FAILED, SKIPPED, ENDED)}
        summary = {**counts, "not run": len(self.stages) - len(results)}
        content = {"format": 1, "device": self.device, "summary": summary, "stages": results}
        self._write(JSON, json.dumps(content, indent=1))
        self._write(PAGE, "\n".join(self._page(summary, results)) + "\n")
        return masked

    def _page(self, summary: dict[str, int], results: list[dict[str, Any]]) -> list[str]:
        """What people read: what passed, what did not, and the figures."""
        counts = ", ".join(f"{count} {status}" for status, count in summary.items() if count)
        lines = ["# GPU check", "", f"Device: {self.device}. Stages: {counts}.", ""]
        if self.device == "cpu":
            lines += ["This check ran on a CPU, with smaller sizes. It says nothing of a GPU.", ""]
        lines += ["| stage | result | seconds | |", "| --- | --- | --- | --- |"]
        for one in results:
            cells = [one["name"], one["status"], f"{one['seconds']:.0f}", " ".join(one["line"].split())]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        for one in results:
            lines += ["", f"## {one['name']}", ""]
            lines += [f"- {check['status']}: {check['name']}: {check['detail']}" for check in one["checks"]]
            lines += ["", "```json", json.dumps(one["figures"], indent=1), "```"]
            if one["tail"]:
                lines += ["", f"Exit status {one['exit']}. The log's last lines:", "", "```text", *one["tail"], "```"]
        return lines

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all."""
        new = self.folder / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(self.folder / name)
