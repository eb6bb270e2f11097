"""All metrics of a run, in its folder, whatever trackers it has: one line of JSON for each time that some are logged.

``{"step": 3, "time": 1767225600.0, "metrics": {"games/count": 128.0, ...}}``; time is in seconds since 1970. A step may
have several lines. A metric that is not a finite number is null.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .disk import LineFile, write_whole

METRICS = "metrics.jsonl"


class Logged(msgspec.Struct, frozen=True):
    """A line of the file."""

    step: int
    time: float
    metrics: dict[str, float | None]


_decode = msgspec.json.Decoder(Logged).decode


class MetricsFile:
    """Writes the file; verl's trackers have the same method ``log``."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._lines = LineFile(run_dir / METRICS)
        self._clock = clock

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Append what was measured at a step. What is no number is left out."""
        numbers = {name: number for name, value in data.items() if (number := _number(value)) is not None}
        metrics = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._lines.append(json.dumps({"step": step, "time": round(self._clock(), 3), "metrics": metrics}))

    def validated(self, step: int) -> bool:
        """Whether there are metrics of a validation at a step."""
        logged = (logged for logged, _ in read_metrics(self._lines.path) if logged.step == step)
        return any(name.startswith("val-") for line in logged for name in line.metrics)

    def cut_back(self, step: int) -> None:
        """Remove what was logged after ``step``."""
        file = self._lines.path
        if file.is_file():
            with file.open("rb") as lines:
                kept = (line for line in lines if (logged := _parse(line)) is not None and logged.step <= step)
                write_whole(file, (line.decode() for line in kept))


def read_metrics(file: Path, start: int = 0) -> Iterator[tuple[Logged, int]]:
    """What was logged, from byte ``start`` on, each with the byte after it. A line that is torn, or still being
    written, or of another form is passed over."""
    if not file.is_file():
        return
    with file.open("rb") as lines:
        lines.seek(start)
        for line in lines:
            start += len(line)
            if line.endswith(b"\n") and (logged := _parse(line)) is not None:
                yield logged, start


def _parse(line: bytes) -> Logged | None:
    try:
        return _decode(line)
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    """A metric as a number of eight digits; None if it is none."""
    try:
        return None if isinstance(value, str) else float(f"{float(value):.8g}")
    except (TypeError, ValueError):
        return None
