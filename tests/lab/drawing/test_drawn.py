"""What lies on a table, as it is drawn: whoever plays sees their own card, and everybody sees all at the end."""

from __future__ import annotations

import pytest

from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.lab.drawing import drawn


def dealt(rounds: int = 1) -> KuhnPoker:
    game = KuhnPoker(5, rounds)
    game.cards = ("K", "J")
    return game


def test_a_player_sees_its_own_card_and_every_move() -> None:
    game = dealt()
    game.step("[check]")
    seen = {viewer: drawn(game, viewer)["now"] for viewer in (0, 1, None)}  # type: ignore[index]
    moves = [[0, "check"]]
    assert seen == {
        0: {"cards": ["K", None], "moves": moves},
        1: {"cards": [None, "J"], "moves": moves},
        None: {"cards": ["K", "J"], "moves": moves},
    }


@pytest.mark.parametrize(
    ("actions", "cards", "chips"), [("[bet] [call]", ["K", "J"], 2), ("[bet] [fold]", [None, "J"], 1)]
)
def test_a_round_that_is_over_shows_cards_that_were_shown(actions: str, cards: list[str | None], chips: int) -> None:
    game = dealt(rounds=3)
    for action in actions.split():
        game.step(action)
    table = drawn(game, 1)
    assert isinstance(table, dict)
    [played] = table["played"]
    assert (played["cards"], played["winner"], played["chips"], table["won"]) == (cards, 0, chips, chips)
    assert table["now"] == {"cards": [None, game.cards[1]], "moves": []}
    game.step("[bet]")  # the second round is begun by the other player
    assert drawn(game)["now"]["moves"] == [[1, "bet"]]  # type: ignore[index]
