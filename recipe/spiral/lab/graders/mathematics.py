"""Whether two answers in LaTeX are the same: put into one form, read, and compared by value.

What is not read as a whole is only the same as itself. Values are compared where their unknowns have drawn values: that
does not depend on what sympy can simplify.
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

from .reading import BASE, BEGIN, END, WORD, Relations, bare, one_form, read

#: Units that need no wrapper, besides all words of four letters and more.
_UNITS = "[cmkn]m|k?g|mg|ms|ft|mi|yd|hrs?|sec|min|mph|deg|sq|[kM]?eV|[kM]?Hz|[kM]J|mol|rad|erg|k?Pa|atm|k?cal|lb|oz|mL"
_UNIT = re.compile(
    r"(?P<per>/)?(?:[\s/*.]|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z]))*"
    rf"(?P<name>{BEGIN}(?!\s*[eid]?\s*{END})[^{BEGIN}{END}]*[a-zA-Z][^{BEGIN}{END}]*{END}"
    rf"|(?<![a-zA-Z\\_{{])(?:{_UNITS}|[a-zA-Z]{{4,}})(?![a-zA-Z]))"
    r"\s*(?:\^\s*\{?\s*(?P<power>[-+]?\d+)\s*\}?)?\s*$"
)
#: What no unit begins with: it changes the value. Of single letters those that are usual units are left out.
_CHANGES = re.compile(
    r"\W*(?:(?i:(?:in )?(?:base|mod)|squared|cubed|factorial|times\W+\w|to the (?!nearest)|plus|minus|over|divided"
    r"|dozen|hundred)|[a-fi-ln-rt-zEIXYZ](?![a-zA-Z]))"
)
#: How words begin behind a number, such as July and June, red and blue: of two different ones neither is a unit.
_WORDS = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{_UNITS})(?![a-zA-Z]))[a-zA-Z]{{3}}")
#: How a text ends that may have a unit.
_VALUE = re.compile(r"(?:[\d})!%]|\\pi)\s*$")
#: A whole answer that is a word, though short. Words that are usual products, such as at, are not.
_SHORT_WORD = re.compile(
    r"\W*(?:no|on|or|of|to|do|go|so|up|in|if|is|it|by|we|he|odd|old|all|any|and|one|two|out|end|add"
    r"|[b-df-hj-np-tv-z][aeiou][b-df-hj-np-tv-z])\W*",
    re.IGNORECASE,
)
#: A date by a month's name, with the day before or behind it.
_DATE = re.compile(
    r"(?:(?P<before>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?)?(?:,?\s+(?P<year>\d{4}))?",
    re.IGNORECASE,
)
#: A logarithm whose base is not written.
_LOG = re.compile(r"\\log(?![a-zA-Z]|\s*_)")
#: The letter of an option, before its text.
_OPTION = re.compile(r"\(([A-Z])\)\s*|([A-Z])(?:[).:]\s*|$)")


def same(reference: str, answer: str) -> bool | None:
    """Whether an answer is the same as the right one; None: it cannot be read."""
    expected, given = one_form(reference), one_form(answer)
    if (date := _date(expected)) and (other_date := _date(given)):
        return date == other_date
    if bool(_LOG.search(expected)) != bool(_LOG.search(given)) and r"\ln" in expected + given:
        expected, given = (_LOG.sub(r"\\ln", text) for text in (expected, given))
    option, chosen = _OPTION.match(bare(expected)), _OPTION.match(bare(given))
    if option and chosen and option.end() == len(bare(expected)) and (option[1] or BEGIN in expected):
        return (option[1] or option[2]) == (chosen[1] or chosen[2])
    if chosen and not option and chosen.end() < len(bare(given)):
        given = bare(given)[chosen.end() :]
    if _compact(expected) == _compact(given):
        return True
    word = BEGIN in expected or WORD.search(expected) or _SHORT_WORD.fullmatch(expected)
    if word and re.fullmatch("[a-zA-Z][a-zA-Z' -]+", bare(expected)):
        return _letters(expected) == _letters(given)
    (first, powers), (second, others) = _without_unit(expected), _without_unit(given)
    behind, other_behind = ({*_WORDS.findall(expected[len(first) :])}, {*_WORDS.findall(given[len(second) :])})
    if behind and other_behind and not behind & other_behind:
        return False
    bases, words = ([set(pattern.findall(bare(value))) for value in (first, second)] for pattern in (BASE, WORD))
    if any(one and other and one != other for one, other in [(powers, others), bases, words]):
        return False
    letters = set(bare(re.sub(r"\\[a-zA-Z]+", "", expected)))
    lower = not any(letter.upper() in letters for letter in letters if letter.islower())
    readable = False
    for one, other in dict.fromkeys([(first, second), (expected, given)]):
        if (value := read(other, lower)) is None:
            continue
        readable = True
        try:
            wanted = read(one, lower)
            if wanted is not None and same_share(wanted, value, "%" in one, "%" in other, digits_of(one, other)):
                return True
        except MemoryError:
            raise
        except Exception:  # sympy's are of many kinds, of what has no value or no order
            continue
    return False if readable else None


def _date(text: str) -> tuple[int, str, str | None] | None:
    """The day, the month and the year of a text that is a date; None: it is none."""
    found = _DATE.fullmatch(bare(text))
    if found is None or bool(found["before"]) == bool(found["after"]):
        return None
    return int(found["before"] or found["after"]), found["month"].lower(), found["year"]


def _compact(text: str) -> str:
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", bare(text))


def _letters(text: str) -> str:
    return re.sub(r"\\[a-zA-Z]+|[^a-z]", "", bare(text).casefold())


def _without_unit(text: str) -> tuple[str, set[int]]:
    """A text without the unit at its end, and the unit's powers where it is plain which: names are not compared."""
    rest, names, powers = text, "", {1}
    while unit := _UNIT.search(rest):
        names += unit["name"]
        powers.add(int(unit["power"] or 1) * (-1 if unit["per"] or "/" in unit["name"] else 1))
        rest = rest[: unit.start()]
    if not _VALUE.search(rest) or _CHANGES.match(bare(text[len(rest) :])):
        return text, set()
    return rest, set() if re.search(r"[\^\d(]|\bper\b|\bsq|cubi|squared|cubed", names) else powers - {1}


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
