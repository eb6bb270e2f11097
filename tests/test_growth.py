"""What the test suite takes for linear time, and what not."""

from __future__ import annotations

import re

from tests.growth import in_linear_time


def test_the_square_of_the_length_is_found_out() -> None:
    """Each ``a`` is looked after to the end of the text."""
    assert not in_linear_time(re.compile("a[^b]*b").findall, "a" * 20_000)


def test_linear_time_is_let_pass() -> None:
    assert in_linear_time(re.compile("a").findall, "a" * 1_000_000)
