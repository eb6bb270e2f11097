r"""One form for what is written in several, before an answer in LaTeX is read. BEGIN...END stands for \text{...}."""

from __future__ import annotations

import re
from collections.abc import Callable

from sympy import Rational

BEGIN, END = "\x02", "\x03"
_OF = "(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|exp|ln|log"
_LETTERS = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|omega|infty"
_NAMES = re.compile(rf"(?:np\.|math\.)?(?<![\\a-zA-Z]){BEGIN}?({_OF}|sqrt|{_LETTERS}){END}?(?![a-zA-Z])")
#: What may stand before and after an answer.
_AROUND = re.compile(rf"^\s*(?:=|\\approx(?![a-zA-Z]))\s*|^\s+|[\s.,;\\]+(?={END}*\s*$)")
_SPACE = r"(?:(?<!\\)\\[,;:!> ]|\\q?quad(?![a-zA-Z])|[~\s])"
_TOKEN = r"(\\[a-zA-Z]+|[0-9a-zA-Z])"
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
_IN_BRACKETS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
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
_FORMS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
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
)


def one_form(text: str) -> str:
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


def bare(text: str) -> str:
    return re.sub(f"[{BEGIN}{END}]", "", text).strip()
