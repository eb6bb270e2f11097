r"""Whether two answers in LaTeX are the same. latex2sympy, which math-verify brings, reads formulas.

What differs only in form is put into one form first. Values are compared where their unknowns have drawn values, which
does not depend on what sympy can simplify. What is not read as a whole is only the same as itself.

This runs in the grader's process (``judge_process``) and imports nothing of ours. BEGIN...END stands for \text{...}.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, is_expr_of_only_symbols, latex2sympy
from sympy import And, Basic, Expr, FiniteSet, Interval, MatrixBase, Rational, Set, Symbol, Tuple, Union
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

BEGIN, END = "\x02", "\x03"
#: A decimal agrees with another value in so many digits, or in as many as are written, but no more than a float has.
_DIGITS, _MOST = 6, 15
#: Values that are no fractions are worked out to so many digits, and agree in so many.
_WORKED_OUT, _EXACT = 40, 30
_OF = "(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|exp|ln|log"
_LETTERS = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|omega|infty"
_NAMES = re.compile(rf"(?:np\.|math\.)?(?<![\\a-zA-Z]){BEGIN}?({_OF}|sqrt|{_LETTERS}){END}?(?![a-zA-Z])")
#: Units that need no wrapper, besides all words of four letters and more.
_UNITS = "[cmkn]m|k?g|mg|ms|ft|mi|yd|hrs?|sec|min|mph|deg|sq|[kM]?eV|[kM]?Hz|[kM]J|mol|rad|erg|k?Pa|atm|k?cal|lb|oz|mL"
_UNIT = re.compile(
    r"(?P<per>/)?(?:[\s/*.]|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z]))*"
    rf"(?P<name>{BEGIN}(?!\s*[eid]?\s*{END})[^{BEGIN}{END}]*[a-zA-Z][^{BEGIN}{END}]*{END}"
    rf"|(?<![a-zA-Z\\_{{])(?:{_UNITS}|[a-zA-Z]{{4,}})(?![a-zA-Z]))"
    r"\s*(?:\^\s*\{?\s*(?P<power>[-+]?\d+)\s*\}?)?\s*$"
)
#: How a text ends that may have a unit.
_VALUE = re.compile(r"(?:[\d})!%]|\\pi)\s*$")
#: Letters that are a word, and no product: capitals may be an order, such as BADC.
_WORD = re.compile(r"(?<![\\{a-zA-Z])(?:[A-Z]{3,}|[a-zA-Z]{4,})(?![a-zA-Z])")
#: A whole answer that is a word, though short. Words that are usual products, such as at, are not.
_SHORT_WORD = re.compile(
    r"\W*(?:no|on|or|of|to|do|go|so|up|in|if|is|it|by|we|he|odd|old|all|any|and|one|two|out|end|add"
    r"|[b-df-hj-np-tv-z][aeiou][b-df-hj-np-tv-z])\W*",
    re.IGNORECASE,
)
#: The letter of an option, before its text.
_OPTION = re.compile(r"\(([A-Z])\)\s*|([A-Z])(?:[).:]\s*|$)")
#: A number in another base.
_BASE = re.compile(r"(?<=\d)\s*_\s*\{?\s*(\d+)\s*\}?")
#: Dots that leave something out, and two numbers side by side: latex2sympy would read past them.
_NOT_READ = re.compile(r"\\[lc]?dots|\.\.|\d\s+\d")
#: Two values in one writing.
_SIGN = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
#: What may stand before and after an answer.
_AROUND = re.compile(rf"^\s*(?:=|\\approx(?![a-zA-Z]))\s*|^\s+|[\s.,;\\]+(?={END}*\s*$)")
_SPACE = r"(?:(?<!\\)\\[,;:!> ]|\\q?quad(?![a-zA-Z])|[~\s])"
_TOKEN = r"(\\[a-zA-Z]+|[0-9a-zA-Z])"
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
_THOUSANDS = ("thousand", "million", "billion", "trillion")
_DEGREES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
#: Where one has such a function, its unknowns are whole numbers.
_WHOLE = (sympy.floor, sympy.ceiling, sympy.factorial, sympy.binomial, sympy.Mod)
_SIGNS = str.maketrans(
    {"π": r"\pi ", "∞": r"\infty ", "×": r"\times ", "·": r"\cdot ", "÷": "/", "−": "-", "–": "-", "≤": r"\le "}  # noqa: RUF001
    | {"≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "²": "^2", "³": "^3"}  # noqa: RUF001
    | {"√": r"\sqrt", "’": "'", "′": "'", "°": r"^\circ", "…": r"\ldots"}  # noqa: RUF001
)


def _repeating(number: re.Match[str]) -> str:
    whole, first, again = number.groups()
    value = Rational(int(whole + first + again) - int(whole + first), (10 ** len(again) - 1) * 10 ** len(first))
    return rf"\frac{{{value.p}}}{{{value.q}}}"


#: One form for what is written in several, one after the other.
_FORMS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"\((\d+)\)(?=\s*_)", r"\1"),
        # 58{,}500, 11,\! 111, 58\,500
        (
            rf"(?<![\d.,])\d{{1,3}}(?:(?:\{{,\}}|,\\!\s*|{_SPACE})\d{{3}})+(?!\d)",
            lambda number: re.sub(r"\D", "", number[0]),
        ),
        (r"\\\$|\$|\\[()\[\]]|\\displaystyle", ""),
        (r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?", ""),
        (rf"{_SPACE}+", " "),
        (r"\\[dtc]frac", r"\\frac"),
        (r"\\[dt]binom", r"\\binom"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\backslash", r"\\setminus"),
        (r"\\varnothing", r"\\emptyset"),
        (r"\\mathbb\s+([A-Z])", r"\\mathbb{\1}"),
        (
            rf"\s*(?:\^\s*\\circ|\^\s*\{{\s*\\circ\s*\}}|\\degree|{BEGIN}?\s*\bdegrees?\b)\s*{END}?"
            rf"(?:\s*{BEGIN}?\s*[CF]\s*{END}?\s*$)?",
            r"^{\\circ}",
        ),
        (rf"\s*(?:\\?%|{BEGIN}?\s*\bpercent(?:age)?\s*{END}?)", "%"),
        (r"'+", lambda primes: "^{" + r"\prime" * len(primes[0]) + "}"),
        (r"(?<=\d)\s*\^\s*\{(?:\s*\\prime)+\s*\}", ""),
        (rf"(?<=[^\s{BEGIN}])[,;]?\s*{BEGIN}?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])\s*{END}?", ","),
        (rf"(?<![\\a-zA-Z]){BEGIN}?inf(?:inity)?{END}?(?![a-zA-Z])", r"\\infty "),
        (
            rf"({BEGIN}?)\s*(?<![a-zA-Z])({'|'.join(_THOUSANDS)})(?![a-zA-Z])",
            lambda number: rf"\cdot 10^{{{3 * _THOUSANDS.index(number[2]) + 3}}}{number[1]}",
        ),
        # .5, -1./3, 4.5e33, 0.\overline{3}, 1 4/5
        (r"(?<![\d.])\.(?=\d)", "0."),
        (r"(?<=\d)\.(?![\d.]|\\overline)", ""),
        (r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])", r"(\1\\cdot 10^{\2})"),
        (r"(\d+)\.(\d*)\\overline\s*\{(\d+)\}", _repeating),
        (r"(?<=\d) (\d+)/(\d+)", r"\\frac{\1}{\2}"),
        # \frac12, \sqrt2, 10^-3, m_{\max}
        (rf"\\frac\s*{_TOKEN}", r"\\frac{\1}"),
        (rf"(\\frac\s*{_GROUP})\s*{_TOKEN}", r"\1{\2}"),
        (rf"\\sqrt\s*(\[[^\]]*\])?\s*{_TOKEN}", r"\\sqrt\1{\2}"),
        (r"\^\s*([-+]\s*(?:\d+|[a-zA-Z]))", r"^{\1}"),
        # \sin{2t} / 5 is no sine of 2t / 5
        (rf"(\\(?:{_OF}))\s*({_GROUP})", lambda function: f"{function[1]}({function[2][1:-1]})"),
        (
            rf"(?<=[a-zA-Z}}{END}])(?<!\\log)(?<!\\sum)(?<!\\int)(?<!\\lim)(?<!\\prod)\s*_\s*({_GROUP}|{_TOKEN})",
            lambda index: "_{" + re.sub(r"[^0-9a-zA-Z+,-]", "", index[1]) + "}",
        ),
    )
)


def same(reference: str, answer: str) -> bool | None:
    """Whether an answer is the same as the right one; None: it cannot be read."""
    expected, given = _form(reference), _form(answer)
    option, chosen = _OPTION.match(_bare(expected)), _OPTION.match(_bare(given))
    if option and chosen and option.end() == len(_bare(expected)) and (option[1] or BEGIN in expected):
        return (option[1] or option[2]) == (chosen[1] or chosen[2])
    if chosen and not option and chosen.end() < len(_bare(given)):
        given = _bare(given)[chosen.end() :]
    if _compact(expected) == _compact(given):
        return True
    word = BEGIN in expected or _WORD.search(expected) or _SHORT_WORD.fullmatch(expected)
    if word and re.fullmatch("[a-zA-Z][a-zA-Z' -]+", _bare(expected)):
        return _letters(expected) == _letters(given)
    (first, powers), (second, others) = _without_unit(expected), _without_unit(given)
    bases, words = ([set(pattern.findall(_bare(value))) for value in (first, second)] for pattern in (_BASE, _WORD))
    if any(one and other and one != other for one, other in [(powers, others), bases, words]):
        return False
    letters = set(_bare(re.sub(r"\\[a-zA-Z]+", "", expected)))
    lower = not any(letter.upper() in letters for letter in letters if letter.islower())
    readable = False
    for one, other in dict.fromkeys([(first, second), (expected, given)]):
        if (value := _read(other, lower)) is None:
            continue
        readable = True
        try:
            wanted = _read(one, lower)
            if wanted is not None and _same_share(wanted, value, "%" in one, "%" in other, _digits(one, other)):
                return True
        except MemoryError:
            raise
        except Exception:  # sympy's are of many kinds, of what has no value or no order
            continue
    return False if readable else None


def _form(text: str) -> str:
    text = _NAMES.sub(r"\\\1 ", _AROUND.sub("", text.translate(_SIGNS)))
    done: list[str] = []
    closing: list[str] = []
    for token in re.finditer(r"(\^|\\sqrt)\s*\(|[()]|[^()^\\]+|.", text, re.DOTALL):  # 2^(n+1), \sqrt(2)
        if token[0] == ")" and closing:
            done.append(closing.pop())
            continue
        if token[0].endswith("("):
            closing.append("}" if token[1] else ")")
        done.append(f"{token[1]}{{" if token[1] else token[0])
    text = "".join(done)
    for pattern, form in _FORMS:
        text = pattern.sub(form, text)
    return _AROUND.sub("", text)


def _bare(text: str) -> str:
    return re.sub(f"[{BEGIN}{END}]", "", text).strip()


def _compact(text: str) -> str:
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", _bare(text))


def _letters(text: str) -> str:
    return re.sub(r"\\[a-zA-Z]+|[^a-z]", "", _bare(text).casefold())


def _without_unit(text: str) -> tuple[str, set[int]]:
    """A text without the unit at its end, and the unit's powers where it is plain which: names are not compared."""
    rest, names, powers = text, "", {1}
    while unit := _UNIT.search(rest):
        names += unit["name"]
        powers.add(int(unit["power"] or 1) * (-1 if unit["per"] or "/" in unit["name"] else 1))
        rest = rest[: unit.start()]
    if not _VALUE.search(rest):
        return text, set()
    return rest, set() if re.search(r"[\^\d(]|\bper\b|\bsq|cubi|squared|cubed", names) else powers - {1}


@dataclass(frozen=True)
class _Relations:
    """Equations or inequalities that hold together, each as its sign and its two sides."""

    parts: tuple[tuple[str, Any, Any], ...]

    @property
    def equation(self) -> tuple[Any, Any] | None:
        """The first and the last side, if there are equations alone."""
        return (self.parts[0][1], self.parts[-1][2]) if all(part[0] == "==" for part in self.parts) else None

    def as_set(self) -> Any:
        return sympy.And(*(sympy.Rel(left, right, sign) for sign, left, right in self.parts)).as_set()


def _read(text: str, lower: bool) -> Any:
    """What a whole text means: sympy's objects, ``_Relations``, lists for sets, tuples; None: it cannot be read."""
    text = re.sub(rf"(?<!{BEGIN}){_WORD.pattern}", f"{BEGIN}\\g<0>{END}", text)
    text = re.sub(f"{BEGIN}([^{BEGIN}{END}0-9]*[a-zA-Z]{{3}}[^{BEGIN}{END}0-9]*){END}", r"\\text{\1}", text)
    text = _BASE.sub("", _bare(text).replace("%", ""))
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    if _NOT_READ.search(text):
        return None
    if _SIGN.search(text):
        return _with_both_signs(text, lower)
    text = re.sub(r"((?<![_\d.a-zA-Z\\])\d+(?:\.\d+)?|\))\s*(?=\()", r"\1\\cdot ", text)  # 2(3) is no mixed number
    text = re.sub(r"E(?=_)", r"\\text{E}", text.replace("\\gamma", r"\text{gam}"))  # no function, and no constant
    try:
        read = latex2sympy(
            re.sub(r"^[^=\\]*=\s*(?=\\begin)", "", text),
            convert_degrees=bool(_DEGREES.search(text)),
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=lower),
        )
    except MemoryError:
        raise
    except Exception:  # antlr's and latex2sympy's are of many kinds
        return None
    return _exact(read) if isinstance(read, Basic | MatrixBase) and not read.has(sympy.zoo, sympy.nan) else None


def _with_both_signs(text: str, lower: bool) -> Any:
    r"""What a text with \pm means: a list of what it says with the upper signs, and with the lower ones."""
    found: list[Any] = []
    for signs in ({"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"}):
        parts = _SIGN.split(text)
        parts[1::2] = [signs[sign] for sign in parts[1::2]]
        read = _read("".join(parts), lower)
        elements = read if isinstance(read, list) else [read]
        if read is None or (r"\mp" not in text and len(parts) // 2 > len(elements)):  # may be four values
            return None
        found += [element for element in elements if element not in found]
    return found


def _exact(read: Any) -> Any:
    """Decimals as fractions, unknown functions and derivatives as unknowns, i as the imaginary unit."""
    if isinstance(read, FiniteSet):
        return [_exact(element) for element in getattr(read, "_unsorted_args", read.args)]
    if isinstance(read, Tuple):
        return tuple(map(_exact, read))
    if isinstance(read, And | Relational):
        parts = getattr(read, "_unsorted_args", [read])
        return _Relations(tuple((part.rel_op, _exact(part.lhs), _exact(part.rhs)) for part in parts))
    opaque = read.atoms(AppliedUndef, sympy.Derivative) if isinstance(read, Basic) else ()
    return read.xreplace(
        {number: Rational(str(number)) for number in read.atoms(sympy.Float)}
        | {node: Symbol(str(node)) for node in opaque}
        | {Symbol("i"): sympy.I}
    )


def _digits(*texts: str) -> float:
    """In how many digits two values must agree; infinitely many, where neither has a decimal."""
    decimals = [decimal for text in texts for decimal in re.findall(r"\d+\.\d+", text)]
    written = min((len(decimal.replace(".", "").lstrip("0")) for decimal in decimals), default=inf)
    return min(max(_DIGITS, written), _MOST) if decimals else inf


def _same_share(wanted: Any, value: Any, of_hundred: bool, given_so: bool, digits: float) -> bool:
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
    if isinstance(first, _Relations) and isinstance(second, _Relations):
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
    if isinstance(value, _Relations) and value.equation:
        left, right = value.equation
        if isinstance(right, Set):  # x lies in it
            return right
        if isinstance(other, _Relations):
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
        if isinstance(one, Set) and all(isinstance(part, _Relations) and not part.equation for part in other):
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
    return value.as_set() if isinstance(value, _Relations) else value


def _same_sets(first: Any, second: Any, digits: float) -> bool:
    if isinstance(first, Interval) and isinstance(second, Interval):
        ends = first.left_open == second.left_open and first.right_open == second.right_open
        return ends and _in_order((first.start, first.end), (second.start, second.end), digits)
    if first.doit() == second.doit():
        return True
    if not isinstance(first, Union) or not isinstance(second, Union):
        return False
    return _matched(first.args, second.args, lambda one, other: _same(one, other, digits))


def _same_relations(first: _Relations, second: _Relations, digits: float) -> bool:
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
