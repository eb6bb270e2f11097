"""No text that a model may answer raises, takes long, or is read as something that it is not."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recipe.spiral.games import Game, IllegalAction, make
from tests.games.playouts import OWN_GAMES, TEXTARENA, needs_textarena
from tests.made import in_linear_time

PIECES = (
    "\\boxed{",
    "}",
    "{",
    "[",
    "]",
    "\\text{",
    "offer",
    ":",
    "->",
    "3",
    " ",
    "Wood",
    "accept",
    "bid",
    "fact 1",
    "roll",
)
#: Characters that mean something to a parser, more often than chance would have them.
TEXT = st.one_of(
    st.text(),
    st.text(alphabet="[](){}\\boxed0123456789abcdehkloprtuvwx ,:;->→\"'*$٤４²\u0301\u200b\n\x00", max_size=80),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)
HUGE = {
    "brackets": "[" * 100_000,
    "pairs": "[]" * 50_000,
    "spaces": " " * 100_000 + "4",
    "digits": "9" * 100_000,
    "marks": "a" + "\u0323\u0301" * 50_000,
    "ligatures": "\ufdfa" * 50_000,
    "offers": "[offer: 1 Wood -> 1 Gold]" * 4_000,
    "open offers": "[offer" * 16_000,
    "item bids": "item 1 2 " * 11_000,
    "emoji": "🎲" * 50_000,
    "nulls": "\x00" * 100_000,
    "words": "dog " * 25_000,
    "inside": "a" + "[" * 99_998 + "a",
}


def states(game_id: str) -> list[Game]:
    """A game at its beginning, in its middle and before its last action: grammars change with the state."""
    game, rng, kept = make(game_id, 5), random.Random(5), []
    while not game.is_terminal:
        kept.append(game.copy())
        game.step(game.random_action(rng))
    return [kept[0], kept[len(kept) // 2], kept[-1]]


@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_any_text_is_read_or_not_without_an_error(game_id: str) -> None:
    games = states(game_id)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TEXT, st.sampled_from(range(len(games))))
    def check(text: str, index: int) -> None:
        game = games[index]
        action = game.parse(text)
        if action is None:
            return
        assert action and action.isprintable() and len(action) <= 1000
        assert game.parse(action) == action, "a canonical action is read as itself"
        twin = game.copy()
        try:
            twin.step(action)
        except IllegalAction:
            assert twin.observation(0) == game.observation(0)

    check()


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("game_id", [*OWN_GAMES, pytest.param(TEXTARENA[0], marks=needs_textarena)])
def test_a_hundred_kilobytes_are_read_in_linear_time(game_id: str, name: str) -> None:
    assert in_linear_time(make(game_id, 5).parse, HUGE[name])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("[4]", "[4]"),
        ("\uff14", "[4]"),  # a full-width 4 is a form of 4
        ("٤", None),  # Arabic-Indic, Devanagari: other digits, which int() would read
        ("²", "[2]"),  # NFKC: a form of 2
        ("-1", None),
        ("1.0", None),
        ("04", None),
        ("4.", "[4]"),
        ("[8] but I choose [0]", None),
        ("9", None),
    ],
)
def test_how_numbers_are_read(text: str, read: str | None) -> None:
    assert make("TicTacToe", 0).parse(text) == read
