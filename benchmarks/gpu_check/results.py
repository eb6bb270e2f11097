"""The folder of a check: a result and a log for each stage, and the report of all of them.

A stage's result is written when the stage has ended, so that after a kill the next call knows what is done. Nothing
gets here that was not masked.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from recipe.spiral.processes.launch import LOCK, PROCESSES
from recipe.spiral.storage.disk import write_whole

from .masking import Masker
from .probe import ENDED, FAILED, PASSED, SKIPPED
from .report import page
from .stages import Stage

JSON, PAGE = "gpu_report.json", "gpu_report.md"
STAGES, LOGS = "stages", "logs"
#: The largest log in characters: its beginning and its end are kept.
LARGEST = 2_000_000
#: The number of last lines of a log that a result holds.
TAIL = 40


class OtherDevice(ValueError):
    """The folder has results for another device."""


class NotOurs(ValueError):
    """The folder holds something else."""


def check_ours(folder: Path) -> None:
    """See that nothing of somebody else's is in the folder, where results are replaced and leftovers removed.

    Raises:
        NotOurs: there is.
    """
    if folder.exists() and not folder.is_dir():
        raise NotOurs(f"--folder {folder}: is a file")
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    # a call that was killed before its first report leaves these
    begun = {LOCK, PROCESSES, *(part for part in (STAGES, LOGS) if not any((folder / part).glob("*")))}
    if there - begun and not any(name.startswith(JSON) for name in there):  # or JSON.*.tmp, of a killed writer
        raise NotOurs(f"--folder {folder}: holds files of something else; give a new folder")


@dataclass
class Result:
    """How a stage ended.

    Attributes:
        status: passed, failed, skipped, or ended.
        line: what a person should read of it.
        exit: the exit status of its process; negative: the signal that ended it.
        seconds: how long it took.
        limit: how long it might have taken.
        tail: of one that failed or was ended, the last lines of its log.
    """

    name: str
    device: str
    status: str
    line: str
    exit: int
    seconds: float
    limit: float
    checks: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


class Results:
    """The folder's files.

    Args:
        folder: it is made.
        device: cuda or cpu.
        masker: everything goes through it.
        stages: all that there are.

    Raises:
        OtherDevice: the folder has results for another device.
    """

    def __init__(self, folder: Path, device: str, masker: Masker, stages: Sequence[Stage]) -> None:
        self.folder, self.device, self.masker, self.stages = folder, device, masker, stages
        for part in (self._stages, self._logs):
            part.mkdir(parents=True, exist_ok=True)
        if others := {result.device for result in self.all()} - {device}:
            raise OtherDevice(
                f"{folder} has results for --device {others.pop()}: give another --folder, or --again to begin anew"
            )

    @property
    def _stages(self) -> Path:
        return self.folder / STAGES

    @property
    def _logs(self) -> Path:
        return self.folder / LOGS

    def work(self, stage: str) -> Path:
        """What a stage makes goes here, and is removed."""
        return self.folder / "work" / stage

    def clear_work(self) -> None:
        shutil.rmtree(self.folder / "work", ignore_errors=True)

    def all(self) -> list[Result]:
        """The results that are there, in the stages' order; what is damaged counts as not there."""
        return [result for stage in self.stages if (result := self.read(stage.name)) is not None]

    def read(self, stage: str) -> Result | None:
        try:
            return Result(**json.loads((self._stages / f"{stage}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def forget(self, stage: str) -> None:
        """Remove a stage's result, before it runs again."""
        (self._stages / f"{stage}.json").unlink(missing_ok=True)

    def write(self, result: Result) -> Result:
        """Keep a stage's result and renew the report; returns the result as it was masked.

        Raises:
            OSError: it cannot be written.
        """
        masked = Result(**self.masker.all(asdict(result)))
        write_whole(self._stages / f"{result.name}.json", json.dumps(asdict(masked), indent=1))
        self.report()
        return masked

    def report(self) -> None:
        """Write the JSON file and the page of all results."""
        results = [asdict(result) for result in self.all()]
        statuses = (PASSED, FAILED, SKIPPED, ENDED)
        counts = {status: sum(result["status"] == status for result in results) for status in statuses}
        content = {
            "format": 1,
            "device": self.device,
            "summary": {**counts, "not run": len(self.stages) - len(results)},
            "about": {stage.name: stage.about for stage in self.stages},
            "stages": results,
        }
        write_whole(self.folder / JSON, json.dumps(content, indent=1))
        write_whole(self.folder / PAGE, page(content))

    def log(self, stage: str) -> Log:
        return Log(self._logs / f"{stage}.log", self.masker)


class Log:
    """A stage's output, masked line by line. Of a very long one the middle is left out.

    It takes lines also when the disk is full, because otherwise the program that prints them would wait for ever.
    """

    def __init__(self, file: Path, masker: Masker) -> None:
        self._file, self._masker = file, masker
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.error: OSError | None = None
        self._last: deque[str] = deque()
        self._written = self._kept = 0
        self._left_out = 0
        try:
            self._out: IO[str] | None = file.open("w", encoding="utf-8")
        except OSError as error:
            self._out, self.error = None, error

    def take(self, line: str) -> None:
        """Take a line, without its line end."""
        line = self._masker(line)
        self.tail.append(line)
        if self._written < LARGEST // 2:
            self._written += len(line) + 1
            self._write(line)
            return
        self._last.append(line)
        self._kept += len(line) + 1
        while self._kept > LARGEST // 2:
            self._kept -= len(self._last.popleft()) + 1
            self._left_out += 1

    def close(self) -> None:
        if self._left_out:
            self._write(f"... {self._left_out} lines left out ...")
        for line in self._last:
            self._write(line)
        if self._out is not None:
            try:
                self._out.close()
            except OSError as error:
                self.error = self.error or error

    def _write(self, line: str) -> None:
        if self._out is None or self.error is not None:
            return
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except OSError as error:
            self.error = error
