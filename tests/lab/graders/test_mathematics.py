"""Answers that are the same in other writings, and answers that look alike and differ."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("latex2sympy2_extended")

from recipe.spiral.lab.graders.mathematics import same

#: What may stand around an answer.
AROUND = (
    r"$%s$",
    r"\(%s\)",
    "%s.",
    r"\mathbf{%s}",
    r"{\bf %s}",
    r"\textbf{%s}",
    r"\fbox{%s}",
    r"\ %s\ ",
    r"\displaystyle %s",
)
#: What may be added to a number.
NUMBER = (
    *(
        r"%s\text{ cm}",
        r"%s \mathrm{~kg} \cdot \mathrm{m}^{2}",
        r"%s~\text{m}^2",
        "%s minutes",
        r"%s^{\circ}",
        r"x = %s",
    ),
    *(r"\textbf{(E) }%s", "= %s", r"%s \text{ units}.", r"\$%s"),
)


def changed(answer: str, rng: random.Random, most: int) -> list[str]:
    """Up to so many of the ways to change one digit or sign. Powers of text, such as C_1, count as well."""
    ways = [
        answer[: digit.start()] + other + answer[digit.end() :]
        for digit in re.finditer(r"\d", answer)
        for other in rng.sample([other for other in "0123456789" if other != digit[0]], 2)
    ]
    for sign in re.finditer(r"(?<![A-Za-z])[-+](?!0(?!\.))", answer):
        ways.append(answer[: sign.start()] + ("+" if sign[0] == "-" else "-") + answer[sign.end() :])
    if re.match(r"[1-9a-z.]|\\(?:d?frac|sqrt|pi)", answer):
        ways.append(f"-{answer}")
    rng.shuffle(ways)
    return list(dict.fromkeys(ways))[:most]


def writings(answer: str) -> Iterator[str]:
    """The same answer in other usual writings."""
    yield from (around % answer for around in AROUND)
    yield answer.replace("\\frac", "\\dfrac")
    yield re.sub(r"(?<![a-zA-Z\d\\]) +| +(?![a-zA-Z\d])", "", answer)
    if answer.count("(") == answer.count(")") and not re.search(r"[\[\]]|\\left", answer):
        yield answer.replace("(", "\\left(").replace(")", "\\right)")
    if number := re.fullmatch(r"(-?)(\d+(?:\.\d+)?)", answer):
        yield from (form % answer for form in NUMBER)
        yield f"{number[1]}00{number[2]}"
        if "." not in answer and len(number[2]) > 3:
            yield from (f"{int(answer):,}".replace(",", comma) for comma in (",", "{,}", "\\,", ",\\!"))
    if number := re.fullmatch(r"(-?[\d.]+)e(-?\d+)", answer):
        yield from (
            form % number.groups() for form in (r"%s \times 10^{%s}", r"%s\cdot10^{%s} \mathrm{~J}", "%s*10^%s")
        )
    if number := re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", answer):
        yield from (form % number.groups() for form in ("%s%s/%s", r"\frac{%s%s}{%s}", r"%s\tfrac{%s}{%s}\text{ cm}"))
    if re.fullmatch(r"[-\d]{1,2}(, ?[-\d]{1,2})+", answer):
        elements = re.split(", ?", answer)
        yield from (", ".join(elements[::-1]), rf"\{{{answer}\}}", r" \text{ and } ".join(elements))


HERE = Path(__file__).parent
#: Of every form that the benchmarks' references have; the texts are our own.
REFERENCES = (HERE / "references.txt").read_text(encoding="utf-8").splitlines()
#: A reference and an answer, with == between them where they are the same, and != where they differ.
PAIRS = (HERE / "pairs.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("reference", REFERENCES)
def test_other_writings_are_right_and_one_digit_or_sign_changed_is_wrong(reference: str) -> None:
    assert [way for way in writings(reference) if not same(reference, way)] == []
    ways = changed(reference, random.Random(reference), 10)
    assert ways or reference in ("0", "$-4$")
    assert [way for way in ways if same(reference, way)] == []


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs(pair: str) -> None:
    reference, equal, answer = pair.partition(" == ")
    if not equal:
        reference, _, answer = pair.partition(" != ")
    assert bool(same(reference, answer)) == bool(equal)


@pytest.mark.parametrize(
    "answer", ["(", r"\frac{1}", "1 2", r"1,\ldots,9", r"\begin{pmatrix} 1", "x ==== 2", "\x02\x03\x00"]
)
def test_what_cannot_be_read_is_told_apart(answer: str) -> None:
    assert same("7", answer) is None
    assert same(answer, answer) is True
