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
from .bundle import is_inside

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

    def __add__(self, other: Bucket) -> Bucket:
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
        #: The last step of each bucket.
        self._last: dict[int, int] = {}
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
            self.first = logged.time if self.first is None else self.first
            self.latest, self.step = logged.time, max(self.step, logged.step)
            self._take(logged.step, logged.metrics.items())
        return self._read != before

    def _take(self, step: int, metrics: Iterable[tuple[str, float | None]]) -> None:
        while step // self._width >= POINTS:
            self._widen()
        place = step // self._width
        self._last[place] = step
        for name, value in metrics:
            if name.startswith(SHOWN):
                new = Bucket(step) if value is None else Bucket(step, 1, value)
                curve = self._buckets.setdefault(name, {})
                curve[place] = curve[place] + new if place in curve else new

    def _widen(self) -> None:
        """Make buckets twice as wide."""
        self._width *= 2
        self._last = {place // 2: step for place, step in sorted(self._last.items())}
        for name, curve in self._buckets.items():
            wider: dict[int, Bucket] = {}
            for place, bucket in curve.items():
                wider[place // 2] = wider[place // 2] + bucket if place // 2 in wider else bucket
            self._buckets[name] = wider

    def total(self, name: str) -> float | None:
        """The sum over all steps; None: the run does not have the metric."""
        curve = self._buckets.get(name)
        return None if curve is None else sum(bucket.sum for bucket in curve.values())

    def shown(self) -> dict[str, Any]:
        """As pages take it: ``axes`` are lists of steps, and ``curves`` has for each name its axis's place and its
        values."""
        axes: dict[tuple[int, ...], int] = {}
        curves: dict[str, list[Any]] = {}
        for name, curve in sorted(self._buckets.items()):
            places, stacked = sorted(curve), name.startswith(STACKED)
            axis = tuple(self._last[place] if stacked else curve[place].step for place in places)
            curves[name] = [axes.setdefault(axis, len(axes)), [curve[place].mean for place in places]]
        return {"axes": [list(axis) for axis in axes], "curves": curves}
