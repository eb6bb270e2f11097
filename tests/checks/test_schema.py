"""The schema has every setting that is SPIRAL's own, and says what each must be."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from recipe.spiral.checks.names import CONFIG, VERLS, read_yaml, walk
from recipe.spiral.checks.schema import KINDS, is_of
from recipe.spiral.opponents.pool import Sample
from recipe.spiral.processes.composing import in_verl

#: Parsed where they are used, or links to other settings.
PARSED = ("games", "opponents", "rules", "prompt", "validation.", "hydra", "defaults", "data.")


def test_every_setting_of_spirals_own_is_described() -> None:
    verls = {name for name, _ in walk(read_yaml(Path(in_verl(VERLS))))}
    values = dict(walk(read_yaml(CONFIG / "spiral_trainer.yaml")))
    ours = {name for name, value in values.items() if not isinstance(value, dict)} - verls
    missing = {name for name in ours - KINDS.keys() if not name.startswith(PARSED)}
    assert not missing
    assert {"data.games_per_start", "validation.games_per_role", "fsp.initial"} <= KINDS.keys()


def test_names_of_ways_are_those_of_the_code() -> None:
    for setting, names in (("fsp.sample", Sample),):
        assert KINDS[setting] == f"one of {', '.join(get_args(names))}"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("true or false", [True, False], [0, "true", None]),
        ("a whole number >= 1", [1, 10**9], [0, 1.0, True, "1", None]),
        ("a whole number >= 1 or null", [1, None], [0, False]),
        ("a number >= 0 and < 1", [0, 0.5], [1, -0.1, math.nan, True, "0.5"]),
        ("a number > 0", [1e-9], [0, math.inf]),
        ("-1 or a whole number >= 1", [-1, 1], [0, -2, "-1"]),
        ("one of a, b", ["a", "b"], ["c", "", None, True]),
        ("one of warn, off", ["warn", "off", False], [True, None]),  # YAML reads a plain off as false
        ("one of 1, 2 or null", [1, 2, None], [3, "1", True, 1.0]),
        ("float32 or null", ["float32", None], ["float16"]),
        ("[a number >= 0 and < 1, a number >= 0 and < 1]", [[0.9, 0.95]], [[0.9], [0.9, 1], 0.9]),
        ("text or null", ["a", None], ["", 1]),
        ("names of a, b", ["a", ["a", "b"], []], ["c", ["a", "c"], None, [None]]),
        ("a list", [[], [1]], ["a", {}]),
        ("a mapping", [{}], [[]]),
    ],
)
def test_a_value_is_what_the_words_say(kind: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not is_of(value, kind)] == []
    assert [value for value in bad if is_of(value, kind)] == []


def test_every_kind_is_understood() -> None:
    """A word that is none would be taken for a choice."""
    number = r"a (whole )?number( [<>]=? -?[\d.]+( and [<>]=? -?[\d.]+)?)?"
    words = rf"((one|names) of [\w.,+ -]+|float32|-1|null|text|a list|a mapping|{number}|\[{number}(, {number})*\])"
    for setting, kind in KINDS.items():
        assert kind == "true or false" or re.fullmatch(rf"{words}( or {words})*", kind), setting
