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
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

#: Of fractions, with which numpy calculates exactly.
Array = np.ndarray[Any, Any]


def solve(constant: Fraction, rows: Array, columns: Array, cross: Array) -> tuple[Fraction, Array]:
    """The game's value and an optimal x. If there are several, it is the mean of the extreme ones.

    For y swap the players: ``solve(-constant, -columns, -rows, -cross.T)``.
    """
    size = len(rows)
    faces = [[*axis, Fraction(end)] for axis in np.eye(size, dtype=int) * Fraction(1) for end in (0, 1)]
    changes = np.column_stack([cross.T, -columns])
    points = {point for planes in combinations([*faces, *changes], size) for point in _meet(planes)}
    inside = [np.array(point) for point in points if all(0 <= z <= 1 for z in point)]
    worths = [worst(x, constant, rows, columns, cross) for x in inside]
    value = max(worths)
    best = np.array([x for x, worth in zip(inside, worths, strict=True) if worth == value])
    return value, best.mean(axis=0)


def worst(x: Array, constant: Fraction, rows: Array, columns: Array, cross: Array) -> Fraction:
    """The payoff of x against its best answer."""
    return constant + rows @ x + np.minimum(0, columns + x @ cross).sum()


def _meet(planes: Sequence[Sequence[Fraction]]) -> list[tuple[Fraction, ...]]:
    """The point where as many planes as dimensions meet, by Gauss-Jordan elimination; [] if there is no such.

    A plane is [*normal, offset], for the points z with normal . z = offset.
    """
    table = np.array(planes)
    for i in range(len(table)):
        pivot = i + int(np.argmax(table[i:, i] != 0))
        if not table[pivot, i]:
            return []
        table[[i, pivot]] = table[[pivot, i]]
        table[i] /= table[i, i]
        others = np.arange(len(table)) != i
        table[others] -= np.outer(table[others, i], table[i])
    return [tuple(table[:, -1])]
