"""A run's metrics as curves: read as they are appended, and thinned to what a screen can show.

Neighbouring steps share a bucket, as many steps wide as a screen needs. So a curve of any length is kept in a few
hundred numbers, and what a renewal costs does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...storage.run_files import METRICS, read_metrics
from .inside import is_inside

#: The most points of a curve.
POINTS = 400
#: The beginnings of the metrics that pages show; TensorBoard has all.
SHOWN = (
    *("games/", "turns/", "pairs/", "val-core/", "val-aux/", "fsp/", "timing_s/", "perf/", "actor/", "opponents/"),
    *("guard/", "async/"),
)
#: Parts of a whole, which a page stacks: they need the same steps, also those that few steps have.
STACKED = "timing_s/"


@dataclass
class Bucket:
    """What neighbouring steps have of a metric: the last of the steps, how many have a number, and the numbers' sum."""

    step: int
    count: int = 0
    sum: float = 0.0

    def add(self, other: Bucket) -> Bucket:
        return Bucket(max(self.step, other.step), self.count + other.count, self.sum + other.sum)

    @property
    def mean(self) -> float | None:
        return float(f"{self.sum / self.count:.6g}") if self.count else None


class Curves:
    """What a run has logged so far. ``first`` and ``latest`` are times in seconds since 1970, None before the first
    line; ``step`` is the last step."""

    def __init__(self, run_dir: Path) -> None:
        self._folder, self._file = run_dir, run_dir / METRICS
        self._identity: tuple[int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._read, self._width, self.step = 0, 1, 0
        self._buckets: dict[str, dict[int, Bucket]] = {}
        #: The last step of each bucket, and when that was logged.
        self._times: dict[int, tuple[int, float]] = {}
        self.first: float | None = None
        self.latest: float | None = None

    def renew(self) -> bool:
        """Read what was appended; everything, if a resumed run has written the file anew. Returns whether there was
        anything."""
        if not is_inside(self._folder, self._file):
            return False
        stat = self._file.stat()
        if self._identity != (stat.st_dev, stat.st_ino) or stat.st_size < self._read:
            self._begin()
            self._identity = (stat.st_dev, stat.st_ino)
        before = self._read
        for logged, end in read_metrics(self._file, before):
            self._read = end
            self._take(logged.step, logged.time, logged.metrics.items())
        return self._read != before

    def _take(self, step: int, time: float, metrics: Iterable[tuple[str, float | None]]) -> None:
        self.first, self.latest, self.step = time if self.first is None else self.first, time, max(self.step, step)
        while step // self._width >= POINTS:
            self._widen()
        place = step // self._width
        self._times[place] = (step, time)
        for name, value in metrics:
            if name.startswith(SHOWN):
                new = Bucket(step) if value is None else Bucket(step, 1, value)
                curve = self._buckets.setdefault(name, {})
                curve[place] = curve[place].add(new) if place in curve else new

    def _widen(self) -> None:
        """Make buckets twice as wide."""
        self._width *= 2
        self._times = {place // 2: last for place, last in sorted(self._times.items())}
        for name, curve in self._buckets.items():
            wider: dict[int, Bucket] = {}
            for place, bucket in curve.items():
                wider[place // 2] = wider[place // 2].add(bucket) if place // 2 in wider else bucket
            self._buckets[name] = wider

    def total(self, name: str) -> float | None:
        """The sum over all steps; None: the run does not have the metric."""
        curve = self._buckets.get(name)
        return None if curve is None else sum(bucket.sum for bucket in curve.values())

    def shown(self) -> dict[str, Any]:
        """As pages take it: ``axes`` are lists of steps, and ``curves`` has for each name its axis's place and its
        values; ``times`` is [steps, seconds since the first], and the page finds those of the steps between."""
        axes: dict[tuple[int, ...], int] = {}
        out: dict[str, list[Any]] = {}
        for name, curve in sorted(self._buckets.items()):
            places = sorted(curve)
            stacked = name.startswith(STACKED)
            axis = tuple(self._times[place][0] if stacked else curve[place].step for place in places)
            out[name] = [axes.setdefault(axis, len(axes)), [curve[place].mean for place in places]]
        times = [self._times[place] for place in sorted(self._times)]
        seconds = [round(time - (self.first or 0.0), 1) for _, time in times]
        return {"axes": [list(axis) for axis in axes], "curves": out, "times": [[step for step, _ in times], seconds]}
