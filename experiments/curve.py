"""What was measured of a run over its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recipe.spiral.evaluation.report.points import Point


@dataclass(frozen=True)
class Course:
    """One run.

    Attributes:
        points: the measured steps, in their order.
        last: what was measured of the last one besides, by name.
        average: NashConv of the average of the policies that training came through, by game; empty where it was not
            measured.
        seconds: what training took.
        policy: of the end, where the game is small: by information set ("K after [check], [bet]") the probabilities of
            the legal actions; what they lack to 1 is anything else. Empty where it was not read.
    """

    points: list[Point]
    last: dict[str, float]
    average: dict[str, float]
    seconds: float
    policy: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Course:
        return cls(**{**data, "points": [Point(**point) for point in data["points"]]})
