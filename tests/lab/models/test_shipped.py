"""The tiny models that come with the recipe: they are taken for their games, and read and play as they should."""

from __future__ import annotations

import pytest

from recipe.spiral.lab.models import MADE_FOR, SHIPPED, embedded
from recipe.spiral.lab.models.read_back import random_play
from recipe.spiral.players.prompts import get_template

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_it_is_taken_for_its_games_and_refused_for_others() -> None:
    assert embedded("tiny", ["TicTacToe", "KuhnPoker"]) == embedded("tiny", ["KuhnPoker"]) == SHIPPED / "tiny"
    with pytest.raises(ValueError, match="Nim"):
        embedded("tiny", ["Nim", "KuhnPoker"])
    with pytest.raises(ValueError, match="tinny"):
        embedded("tinny")


@pytest.mark.parametrize("name", list(MADE_FOR))
def test_it_reads_what_it_is_shown_and_plays_at_random(name: str) -> None:
    """Fails where a game's text or the template has changed since it was made."""
    from recipe.spiral.lab.models.forest import probabilities
    from recipe.spiral.lab.models.reader import Reader

    folder = embedded(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    reader = Reader(model, transformers.AutoTokenizer.from_pretrained(folder), get_template("chat"))
    positions = [seen for game in MADE_FOR[name] for seen in random_play(game, 20, 0)[:60]]
    assert min(reader.legal(positions).values()) >= 0.97
    assert min(reader.read_back(positions).values()) >= 0.97
    moves = [reader.moves(position) for position in positions]
    for shares in (values for values in probabilities(model, moves) if len(values) > 1):
        assert max(shares) < 3 * min(shares)
