"""Answers that are the same in other writings, and answers that look alike and differ."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.lab.graders.writings import changed, writings

pytest.importorskip("latex2sympy2_extended")

from recipe.spiral.lab.graders.mathematics import same

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
