"""A run's metrics as curves: read as they are appended, and thinned to what a screen can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ...storage.metrics_file import METRICS, read_metrics

#: The most points of a curve.
POINTS = 400
#: The beginnings of the metrics that pages show; TensorBoard has all.
SHOWN = (
    *("games/", "turns/", "pairs/", "val-core/", "val-aux/", "fsp/", "timing_s/", "perf/", "actor/", "opponents/"),
    *("guard/", "async/"),
)
#: Parts of a whole, which a page stacks: they need the same steps, also those that few steps have.
STACKED = "timing_s/"


class Curves:
    """What a run has logged so far: ``values`` by metric and step, and the ``times`` of the steps, in seconds since
    1970."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / METRICS
        self._read = 0
        self._identity: tuple[int, int] | None = None
        self.values: dict[str, dict[int, float | None]] = {}
        self.times: dict[int, float] = {}

    def renew(self) -> bool:
        """Read what was appended; everything, if a resumed run has written the file anew. Returns whether there was
        anything."""
        if not self._file.is_file():
            return False
        stat = self._file.stat()
        if self._identity != (stat.st_dev, stat.st_ino) or stat.st_size < self._read:
            self._read, self.values, self.times = 0, {}, {}
            self._identity = (stat.st_dev, stat.st_ino)
        before = self._read
        for logged, end in read_metrics(self._file, before):
            self._read = end
            self.times[logged.step] = logged.time
            for name, value in logged.metrics.items():
                self.values.setdefault(name, {})[logged.step] = value
        return self._read != before


def thinned(curves: Mapping[str, Mapping[int, float | None]]) -> dict[str, Any]:
    """Curves as pages take them: ``axes`` are lists of steps, and ``curves`` has for each name its axis's place and its
    values. Where there are more than ``POINTS``, a point is the mean of neighbours, at the last one's step."""
    axes: dict[tuple[int, ...], int] = {}
    out: dict[str, list[Any]] = {}
    stacked = [name for name in curves if name.startswith(STACKED)]
    alike = dict(zip(stacked, thinned_alike([curves[name] for name in stacked], POINTS), strict=True))
    for name in sorted(curves):
        [axis, values] = alike.get(name) or thinned_alike([curves[name]], POINTS)[0]
        out[name] = [axes.setdefault(tuple(axis), len(axes)), values]
    return {"axes": [list(axis) for axis in axes], "curves": out}


def since_start(times: Mapping[int, float], most: int) -> list[list[Any]]:
    """[steps, seconds since the first of them]; the page finds those of the steps between."""
    steps = sorted(times)
    kept = [step for place, step in enumerate(steps) if (len(steps) - 1 - place) % -(-len(steps) // most) == 0]
    return [kept, [round(times[step] - times[steps[0]], 1) for step in kept]]


def thinned_alike(curves: Sequence[Mapping[int, float | None]], most: int) -> list[list[list[Any]]]:
    """Each curve as [steps, values]. All are thinned at the same steps: otherwise runs of different lengths would have
    points at different steps, and their mean would jump from one to the next."""
    steps = sorted({step for curve in curves for step in curve})
    size = -(-len(steps) // most)
    ends = {step: steps[min(place - place % size + size, len(steps)) - 1] for place, step in enumerate(steps)}
    return [_at(curve, ends) for curve in curves]


def _at(curve: Mapping[int, float | None], ends: Mapping[int, int]) -> list[list[Any]]:
    """A curve's means over the steps that have the same end, there."""
    points: dict[int, list[float | None]] = {}
    for step in sorted(curve):
        points.setdefault(ends[step], []).append(curve[step])
    return [list(points), [_mean(values) for values in points.values()]]


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    numbers = [value for value in values if value is not None]
    return float(f"{fmean(numbers):.6g}") if numbers else None
