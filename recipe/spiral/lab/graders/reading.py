r"""What an answer in LaTeX means: what is written in several ways gets one form, which latex2sympy reads (math-verify
brings it). BEGIN...END stands for \text{...}, and for whatever else only says how a part looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from sympy import And, Basic, FiniteSet, MatrixBase, Rational, Symbol, Tuple
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational


def _within(opened: str, closed: str) -> str:
    """What stands between two brackets, with pairs of them inside pairs."""
    inside = other = rf"(?:\\.|[^{opened}{closed}\\])"
    for _ in range(5):
        inside = rf"(?:{other}|{opened}{inside}*+{closed})"
    return f"{inside}*+"


BEGIN, END = "\x02", "\x03"
_IN_BRACES, _IN_BRACKETS = _within(r"\{", r"\}"), _within(r"\(", r"\)")
_GROUP = rf"\{{{_IN_BRACES}\}}"
_WRAPPERS = (
    r"(?:text|math)(?!bb|color)[a-z]*|[fhmv]box|(?:frame|make)box(?:\s*\[[^][{}]*\])*|emph|under(?:line|bar)|u+line|hl"
    r"|operatorname[a-z]*\*?|(?:Make)?(?i:upp|low)ercase|boldsymbol|bm|pmb|bold|ensuremath|(?:text)?color(?:box)?\s*\{[^{}]*\}"
)
_FONTS = (
    r"(?:bf|rm|it|sf|tt|sc|sl|em|cal|(?:bf|it|rm|sf|tt|sc|sl|up|md|normal)(?:series|shape|family|font)|tiny|scriptsize"
    r"|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge|(?:display|text)style)(?![a-zA-Z])|color\s*\{[^{}]*\}"
)
_WRAPPED = re.compile(rf"(?:\\(?:{_WRAPPERS}|{_FONTS})\s*\{{|\{{\s*\\(?:{_FONTS})\s*)({_IN_BRACES})\}}", re.DOTALL)
_FONT = re.compile(rf"\\(?:{_FONTS})\s*")
#: 2^(n+1), \sqrt(2)
_RAISED = re.compile(rf"(\^|\\sqrt)\s*\(({_IN_BRACKETS})\)", re.DOTALL)
_OF = "(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|exp|ln|log"
_LETTERS = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|omega|infty"
_NAMES = re.compile(rf"(?:np\.|math\.)?(?<![\\a-zA-Z]){BEGIN}?({_OF}|sqrt|{_LETTERS}){END}?(?![a-zA-Z])")
#: What may stand before and after an answer.
_AROUND = re.compile(rf"^\s*(?:=|\\approx(?![a-zA-Z]))\s*|^\s+|[\s.,;\\]+(?={END}*\s*$)")
_SPACE = r"(?:(?<!\\)\\[,;:!> ]|\\q?quad(?![a-zA-Z])|[~\s])"
_TOKEN = r"(\\[a-zA-Z]+|[0-9a-zA-Z])"
_IN_NUMBERS = r"\\(?:times|cdot|[dtc]?frac|sqrt)(?![a-zA-Z])"
_THOUSANDS = ("thousand", "million", "billion", "trillion")
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
_FORMS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\((\d+)\)(?=\s*_)", r"\1"),
    # 58{,}500, 11,\! 111, 58\,500
    (
        rf"(?<![\d.,_])\d{{1,3}}(?:(?:\{{,\}}|,\\!\s*|{_SPACE})\d{{3}})+(?!\d)",
        lambda number: re.sub(r"\D", "", number[0]),
    ),
    (r"\\\$|\$|\\[()\[\]]|\\displaystyle", ""),
    (r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?", ""),
    (rf"{_SPACE}+", " "),
    # \text{5 cm}: the number is no part of the text; \text{5 cm 3 mm} and \text{5 pm} are
    (
        rf"{BEGIN}\s*([-+]?(?:\d|\.\d|\\[dtc]?frac|\\sqrt)(?:[^:a-zA-Z\\{BEGIN}{END}]|{_IN_NUMBERS})*)(?<=[\d)}}])"
        rf"(?=(?:\s+(?![aApP]\.?[mM])[a-zA-Z]|[ckm][gm])(?:[^\d\\{BEGIN}{END}]|\^\s*\{{?-?\d)*{END})",
        rf"\1{BEGIN}",
    ),
    (r"\\[dtc](frac|binom)", r"\\\1"),
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
    # \frac12, \binom52, \log_2 3, \sqrt2, 10^-3, m_{\max}
    (rf"\\(frac|binom)\s*{_TOKEN}", r"\\\1{\2}"),
    (rf"(\\(?:frac|binom)\s*{_GROUP})\s*{_TOKEN}", r"\1{\2}"),
    (rf"\\log\s*_\s*(\d+(?=\s*[({{\\a-zA-Z]|\s+\d)|{_TOKEN})", r"\\log_{\1}"),
    (rf"\\sqrt\s*(\[[^\]]*\])?\s*{_TOKEN}", r"\\sqrt\1{\2}"),
    (r"\^\s*([-+]\s*(?:\d+|[a-zA-Z]))", r"^{\1}"),
    # \vec a is no a
    (r"\\vec\s*(?:\{\s*([a-zA-Z])\s*\}|([a-zA-Z]))", r"\1\2_{vec}"),
    # \sin^2 x, \ln^{3}(2t): the power of a value
    (
        rf"\\({_OF})\s*\^\s*(?:\{{\s*(\d+)\s*\}}|(\d))\s*(?:\(({_IN_BRACKETS})\)|([^\s+=,;()<>{{}}-]+))",
        lambda power: rf"(\{power[1]}({power[4] or power[5]}))^{{{power[2] or power[3]}}}",
    ),
    # \sin{2t} / 5 is no sine of 2t / 5
    (rf"(\\(?:{_OF}))\s*({_GROUP})", lambda function: f"{function[1]}({function[2][1:-1]})"),
    (
        rf"(?<=[a-zA-Z}}{END}])(?<!\\log)(?<!\\sum)(?<!\\int)(?<!\\lim)(?<!\\prod)\s*_\s*({_GROUP}|{_TOKEN})",
        lambda index: "_{" + re.sub(r"[^0-9a-zA-Z+,-]", "", index[1]) + "}",
    ),
)


def one_form(text: str) -> str:
    text = _FONT.sub("", _repeated(_WRAPPED, rf"{BEGIN}\1{END}", text))
    text = _NAMES.sub(r"\\\1 ", _AROUND.sub("", text.translate(_SIGNS)))
    text = _repeated(_RAISED, r"\1{\2}", text)
    for pattern, form in _FORMS:
        text = re.sub(pattern, form, text)
    return _AROUND.sub("", text)


def _repeated(pattern: re.Pattern[str], form: str, text: str) -> str:
    """A text with all of a pattern in another form, also what stands in another one of it."""
    while (found := pattern.sub(form, text)) != text:
        text = found
    return text


def bare(text: str) -> str:
    return re.sub(f"[{BEGIN}{END}]", "", text).strip()


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
