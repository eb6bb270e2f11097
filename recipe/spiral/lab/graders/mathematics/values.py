"""Whether two answers that were read are the same.

Values are compared where their unknowns have drawn values, which does not depend on what sympy can simplify.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import is_expr_of_only_symbols
from sympy import Expr, Interval, MatrixBase, Rational, Set, Symbol, Union

from .reading import Relations

#: A decimal agrees with another value in so many digits, or in as many as are written, but no more than a float has.
_DIGITS, _MOST = 6, 15
#: Values that are no fractions are worked out to so many digits, and agree in so many.
_WORKED_OUT, _EXACT = 40, 30
#: Where one has such a function, its unknowns are whole numbers.
_WHOLE = (sympy.floor, sympy.ceiling, sympy.factorial, sympy.binomial, sympy.Mod)


def digits_of(*texts: str) -> float:
    """In how many digits two values must agree; infinitely many, where neither has a decimal."""
    decimals = [decimal for text in texts for decimal in re.findall(r"\d+\.\d+", text)]
    written = min((len(decimal.replace(".", "").lstrip("0")) for decimal in decimals), default=inf)
    return min(max(_DIGITS, written), _MOST) if decimals else inf


def same_share(wanted: Any, value: Any, of_hundred: bool, given_so: bool, digits: float) -> bool:
    """Whether two values are the same; 20% is also 20 and 0.2, but 0.2% is not 0.2."""
    if _same(wanted, value, digits):
        return of_hundred or not given_so or not isinstance(value, Expr) or abs(value) >= 1
    if of_hundred == given_so or not isinstance(wanted, Expr) or not isinstance(value, Expr):
        return False
    return _same(wanted / 100, value, digits) if of_hundred else _same(wanted, value / 100, digits)


def _same(first: Any, second: Any, digits: float) -> bool:
    first, second = _unnamed(first, second, digits), _unnamed(second, first, digits)
    if isinstance(first, list | tuple) or isinstance(second, list | tuple):
        return _same_elements(first, second, digits)
    if isinstance(first, Relations) and isinstance(second, Relations):
        return _same_relations(first, second, digits)
    if isinstance(first, Set) or isinstance(second, Set):
        return _same_sets(_as_set(first), _as_set(second), digits)
    if isinstance(first, MatrixBase) and isinstance(second, MatrixBase):
        return first.shape == second.shape and _in_order(first.flat(), second.flat(), digits)
    return isinstance(first, Expr) and isinstance(second, Expr) and _same_values(first, second, digits)


def _unnamed(value: Any, other: Any, digits: float) -> Any:
    """What x = 3 says of x, or 1 + 2 = 3 of 3, where the other side says only that; a list's only element."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(other, list):
        return _unnamed(value[0], other, digits)
    if isinstance(value, Relations) and value.equation:
        left, right = value.equation
        if isinstance(right, Set):  # x lies in it
            return right
        if isinstance(other, Relations):
            return value
        if is_expr_of_only_symbols(left) or _same(left, right, digits):
            return right
        if is_expr_of_only_symbols(right):
            return left
    return value


def _in_order(first: Sequence[Any], second: Sequence[Any], digits: float) -> bool:
    return len(first) == len(second) and all(_same(*pair, digits) for pair in zip(first, second, strict=True))


def _matched(first: Sequence[Any], second: Sequence[Any], alike: Callable[[Any, Any], bool]) -> bool:
    """Whether each element of one has its own among the other's."""
    left = list(second)
    for element in first:
        partner = next((place for place, other in enumerate(left) if alike(element, other)), None)
        if partner is None:
            return False
        del left[partner]
    return not left


def _same_elements(first: Any, second: Any, digits: float) -> bool:
    """(1, 2) may be a point or an interval; its order counts if it is the reference's."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Set) and all(isinstance(part, Relations) and not part.equation for part in other):
            return _same_sets(_as_set(first), _as_set(second), digits)
    first, second = (
        (value.start, value.end) if isinstance(value, Interval) and value.left_open and value.right_open else value
        for value in (first, second)
    )
    if not isinstance(first, list | tuple) or not isinstance(second, list | tuple):
        return False
    if isinstance(first, tuple):
        return _in_order(first, second, digits)
    return _matched(first, second, lambda one, other: _same(one, other, digits))


def _as_set(value: Any) -> Any:
    """What an inequality, or one of several, allows; other values as they are."""
    if isinstance(value, list):
        return Union(*map(_as_set, value))
    return value.as_set() if isinstance(value, Relations) else value


def _same_sets(first: Any, second: Any, digits: float) -> bool:
    if isinstance(first, Interval) and isinstance(second, Interval):
        ends = first.left_open == second.left_open and first.right_open == second.right_open
        return ends and _in_order((first.start, first.end), (second.start, second.end), digits)
    if first.doit() == second.doit():
        return True
    if not isinstance(first, Union) or not isinstance(second, Union):
        return False
    return _matched(first.args, second.args, lambda one, other: _same(one, other, digits))


def _same_relations(first: Relations, second: Relations, digits: float) -> bool:
    ones, others = ([("==", *value.equation)] if value.equation else value.parts for value in (first, second))
    if _matched(ones, others, lambda one, other: _same_relation(one, other, digits)):
        return True
    return not first.equation and not second.equation and bool(first.as_set() == second.as_set())


def _same_relation(first: tuple[str, Any, Any], second: tuple[str, Any, Any], digits: float) -> bool:
    """Whether one is the other with both sides multiplied by the same."""
    (sign, *sides), (other_sign, *other_sides) = first, second
    if not all(isinstance(side, Expr) for side in (*sides, *other_sides)):
        return sign == other_sign and _in_order(sides, other_sides, digits)
    (sign, one), (other_sign, other) = _difference(*first), _difference(*second)
    values = [(_value(one, point), _value(other, point)) for point in _points(one, other)]
    values = [(x, y) for x, y in values if x is not None and y is not None]
    base = next(((x, y) for x, y in values if x and y), None)
    if sign != other_sign or base is None or (sign.startswith(">") and base[0] * base[1] < 0):
        return False
    return len(values) > 1 and all(_agree(x * base[1], y * base[0], digits) for x, y in values)


def _difference(sign: str, left: Expr, right: Expr) -> tuple[str, Expr]:
    """The sign without direction, and what it compares with 0."""
    if sign in ("==", "!="):
        return sign, sympy.fraction(sympy.together(left - right))[0]
    return (sign, left - right) if sign.startswith(">") else (sign.replace("<", ">"), right - left)


def _same_values(first: Expr, second: Expr, digits: float) -> bool:
    if first == second:
        return True
    agreed = False
    for point in _points(first, second):
        one, other = _value(first, point), _value(second, point)
        if one is None and other is None:
            continue
        if one is None or other is None or not _agree(one, other, digits):
            return False
        agreed = True
    return agreed


def _points(first: Expr, second: Expr) -> Iterator[dict[Symbol, Rational]]:
    """Values for the unknowns: positive ones, as of lengths and counts, unless an absolute value says otherwise."""
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    whole = first.has(*_WHOLE) and second.has(*_WHOLE)
    least = -999 if first.has(sympy.Abs) or second.has(sympy.Abs) else 1
    rng = random.Random(1)
    for number in range(1, 41 if whole else 5) if symbols else [0]:
        drawn = [Rational(rng.randint(1, 40)) if whole else Rational(rng.randint(least, 999), 500) for _ in symbols]
        yield dict(zip(symbols, [Rational(number), *drawn[1:]] if whole else drawn, strict=False))


def _value(expression: Expr, point: dict[Symbol, Rational]) -> Any:
    """A number; None: there is none."""
    value = expression.xreplace(point).doit()
    if not value.is_Rational:
        value = value.evalf(_WORKED_OUT)
    return value if value.is_number and value.is_finite else None


def _agree(first: Any, second: Any, digits: float) -> bool:
    if first == second or (first.is_Rational and second.is_Rational and digits == inf):
        return bool(first == second)
    gap, sizes = abs(first - second), (abs(first), abs(second))
    if digits == inf:
        return bool(gap <= max(sizes) * Rational(1, 10**_EXACT))
    if not all(sizes):
        return False
    unit = sympy.Integer(10) ** (int(sympy.floor(sympy.log(min(sizes).evalf(20), 10))) + 1 - int(digits))
    if not (first.is_real and second.is_real):
        return bool(2 * gap <= unit)
    return any(shortened(first / unit) == shortened(second / unit) for shortened in (round, int))
