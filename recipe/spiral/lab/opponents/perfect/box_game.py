"""Zero-sum games whose players each choose a point of a unit box, with a payoff that is linear in either's choice.

    payoff(x, y) = constant + rows . x + columns . y + x' cross y

One player chooses x in [0, 1]^n to make it large, the other y in [0, 1]^m to make it small.

A round of Kuhn poker is such a game after the choices that gain nothing are removed; a coordinate is the probability at
one decision. Games with two or three coordinates are solved exactly, in fractions. Against a given x the other player's
best y is a corner of the box, coordinate by coordinate:

    worst(x) = constant + rows . x + sum_j min(0, columns_j + sum_i x_i cross_ij)

This is concave, and linear between the hyperplanes where a minimum changes. So it is greatest at a point where n of
these hyperplanes and of the box's faces meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

Vector = Sequence[Fraction]
#: (normal, offset): the points z with normal . z + offset = 0.
Plane = tuple[Vector, Fraction]


@dataclass(frozen=True)
class BoxGame:
    """A game of this kind; ``cross`` has a row for each coordinate of x."""

    constant: Fraction
    rows: Vector
    columns: Vector
    cross: Sequence[Vector]

    def worst(self, x: Vector) -> Fraction:
        """The payoff of x against its best answer."""
        answers = (min(Fraction(0), _at(plane, x)) for plane in self._changes())
        return self.constant + _dot(self.rows, x) + sum(answers)

    def _changes(self) -> list[Plane]:
        """Where the best answer changes, one plane for each coordinate of y."""
        return list(zip(zip(*self.cross, strict=True), self.columns, strict=True))

    def solve(self) -> tuple[Fraction, tuple[Fraction, ...]]:
        """The game's value and an optimal x. If there are several, it is the mean of the extreme ones."""
        size = len(self.rows)
        faces = [([Fraction(int(i == j)) for j in range(size)], Fraction(-end)) for i in range(size) for end in (0, 1)]
        points = {point for planes in combinations([*faces, *self._changes()], size) for point in _meet(planes)}
        worths = {point: self.worst(point) for point in points if all(0 <= z <= 1 for z in point)}
        value = max(worths.values())
        best = [point for point, worth in worths.items() if worth == value]
        return value, tuple(sum(parts, Fraction(0)) / len(best) for parts in zip(*best, strict=True))

    def other_side(self) -> BoxGame:
        """The same game from the minimising player's side, with the negative payoff."""
        return BoxGame(
            -self.constant,
            [-z for z in self.columns],
            [-z for z in self.rows],
            [[-z for z in column] for column in zip(*self.cross, strict=True)],
        )


def _dot(a: Vector, b: Vector) -> Fraction:
    return sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))


def _at(plane: Plane, point: Vector) -> Fraction:
    return _dot(plane[0], point) + plane[1]


def _meet(planes: Sequence[Plane]) -> list[tuple[Fraction, ...]]:
    """The point where as many planes as dimensions meet, by Gauss-Jordan elimination; [] if there is no such."""
    table = [[*normal, -offset] for normal, offset in planes]
    for i in range(len(table)):
        pivot = next((row for row in table[i:] if row[i]), None)
        if pivot is None:
            return []
        table.remove(pivot)
        table.insert(i, [z / pivot[i] for z in pivot])
        table = [
            row if k == i else [z - row[i] * p for z, p in zip(row, table[i], strict=True)]
            for k, row in enumerate(table)
        ]
    return [tuple(row[-1] for row in table)]
