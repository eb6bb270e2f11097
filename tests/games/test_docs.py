"""The documentation of the games: its example runs and keeps the contract, and its tables name every game."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import known_games
from recipe.spiral.games.registry import _ALIASES
from tests.games.playouts import playout
from tests.games.test_every_game import check_end, check_state

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def example() -> Any:
    """The class in docs/adding_a_game.md, as if its code were a file among the games."""
    code = re.findall(r"```python\n(.*?)```", (DOCS / "adding_a_game.md").read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {"__package__": "recipe.spiral.games", "__name__": "recipe.spiral.games.undercut"}
    exec(code[0], scope)
    exec(code[2], scope)
    return scope


def test_the_example_keeps_the_contract(example: Any) -> None:
    for seed in range(20):
        game, rng = example["Undercut"](seed), random.Random(f"player {seed}")
        turns = 0
        for _ in playout(game, rng):
            check_state(game, rng)
            changed = game.copy()
            example["other_number"](changed, 0)
            assert changed.observation(1) == game.observation(1)
            turns += 1
        check_end(game, turns)
    assert example["Undercut"](0).parse("5.") == "[5]"


def test_the_example_is_scored_as_it_says(example: Any) -> None:
    game = example["Undercut"](0, rounds=1)
    prize = game.prize
    for action in ("[5]", "[4]"):
        game.step(action)
    assert game.scores == [0, 9 * prize] and game.rewards() == (-1.0, 1.0)


def test_the_tables_name_every_game_and_alias() -> None:
    text = (DOCS / "games.md").read_text(encoding="utf-8")
    missing = [name for name in (*known_games(), *_ALIASES) if f"`{name}`" not in text and f"| {name} |" not in text]
    assert not missing
    for game_id in known_games():
        rows = [line for line in text.splitlines() if line.startswith(f"| {game_id} |")]
        assert len(rows) == 3, f"{game_id}: speed, fairness and tokens"
