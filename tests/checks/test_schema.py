"""The schema has every setting that is SPIRAL's own, and says what each must be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Lt

from recipe.spiral.checks.names import CONFIG, VERLS, read_yaml, walk
from recipe.spiral.checks.schema import SETTINGS, describe
from recipe.spiral.processes.composing import in_verl

#: Parsed where they are used, or links to other settings.
PARSED = ("games", "opponents", "rules", "prompt", "validation.", "hydra", "defaults", "data.")


def test_every_setting_of_spirals_own_is_described() -> None:
    verls = {name for name, _ in walk(read_yaml(Path(in_verl(VERLS))))}
    values = dict(walk(read_yaml(CONFIG / "spiral_trainer.yaml")))
    ours = {name for name, value in values.items() if not isinstance(value, dict)} - verls
    missing = {name for name in ours - SETTINGS.keys() if not name.startswith(PARSED)}
    assert not missing
    assert {"data.games_per_start", "validation.games_per_role", "fsp.initial"} <= SETTINGS.keys()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (Annotated[int, Ge(1)], "a whole number >= 1"),
        (Annotated[int, Ge(1)] | None, "a whole number >= 1 or null"),
        (Annotated[float, Ge(0), Lt(1)], "a number >= 0 and < 1"),
        (Literal["a", "b", False], "one of a, b"),
        (Literal[1, 2] | None, "one of 1, 2 or null"),
        (list[int], "a list"),
    ],
)
def test_a_type_is_described_in_words(kind: object, words: str) -> None:
    assert describe(kind) == words
