"""What an answer in LaTeX means; latex2sympy, which math-verify brings, reads formulas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from sympy import And, Basic, FiniteSet, MatrixBase, Rational, Symbol, Tuple
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from .forms import BEGIN, END, bare

#: Letters that are a word, and no product: capitals may be an order, such as BADC.
WORD = re.compile(r"(?<![\\{a-zA-Z])(?:[A-Z]{3,}|[a-zA-Z]{4,})(?![a-zA-Z])")
#: A number in another base.
BASE = re.compile(r"(?<=\d)\s*_\s*\{?\s*(\d+)\s*\}?")
#: Dots that leave something out, and two numbers side by side: latex2sympy would read past them.
_NOT_READ = re.compile(r"\\[lc]?dots|\.\.|\d\s+\d")
#: Two values in one writing.
_SIGN = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_DEGREES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")


@dataclass(frozen=True)
class Relations:
    """Equations or inequalities that hold together, each as its sign and its two sides."""

    parts: tuple[tuple[str, Any, Any], ...]

    @property
    def equation(self) -> tuple[Any, Any] | None:
        """The first and the last side, if there are equations alone."""
        return (self.parts[0][1], self.parts[-1][2]) if all(part[0] == "==" for part in self.parts) else None

    def as_set(self) -> Any:
        return sympy.And(*(sympy.Rel(left, right, sign) for sign, left, right in self.parts)).as_set()


def read(text: str, lower: bool) -> Any:
    """What a whole text means: sympy's objects, ``Relations``, lists for sets, tuples; None: it cannot be read."""
    text = re.sub(rf"(?<!{BEGIN}){WORD.pattern}", f"{BEGIN}\\g<0>{END}", text)
    text = re.sub(f"{BEGIN}([^{BEGIN}{END}0-9]*[a-zA-Z]{{3}}[^{BEGIN}{END}0-9]*){END}", r"\\text{\1}", text)
    text = BASE.sub("", bare(text).replace("%", ""))
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    if _NOT_READ.search(text):
        return None
    if _SIGN.search(text):
        return _with_both_signs(text, lower)
    text = re.sub(r"((?<![_\d.a-zA-Z\\])\d+(?:\.\d+)?|\))\s*(?=\()", r"\1\\cdot ", text)  # 2(3) is no mixed number
    text = re.sub(r"E(?=_)", r"\\text{E}", text.replace("\\gamma", r"\text{gam}"))  # no function, and no constant
    try:
        meant = latex2sympy(
            re.sub(r"^[^=\\]*=\s*(?=\\begin)", "", text),
            convert_degrees=bool(_DEGREES.search(text)),
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=lower),
        )
    except MemoryError:
        raise
    except Exception:  # antlr's and latex2sympy's are of many kinds
        return None
    return _exact(meant) if isinstance(meant, Basic | MatrixBase) and not meant.has(sympy.zoo, sympy.nan) else None


def _with_both_signs(text: str, lower: bool) -> Any:
    r"""What a text with \pm means: a list of what it says with the upper signs, and with the lower ones."""
    found: list[Any] = []
    for signs in ({"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"}):
        parts = _SIGN.split(text)
        parts[1::2] = [signs[sign] for sign in parts[1::2]]
        value = read("".join(parts), lower)
        elements = value if isinstance(value, list) else [value]
        if value is None or (r"\mp" not in text and len(parts) // 2 > len(elements)):  # may be four values
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
        return Relations(tuple((part.rel_op, _exact(part.lhs), _exact(part.rhs)) for part in parts))
    opaque = read.atoms(AppliedUndef, sympy.Derivative) if isinstance(read, Basic) else ()
    return read.xreplace(
        {number: Rational(str(number)) for number in read.atoms(sympy.Float)}
        | {node: Symbol(str(node)) for node in opaque}
        | {Symbol("i"): sympy.I}
    )
