"""Whom the policy plays in validation: each opponent the games that it can, and one that can none is named."""

from __future__ import annotations

from typing import Any

import pytest

from recipe.spiral.players.seats import Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts.schedule import GameShare, validation_rows
from recipe.spiral.rollouts.validation_opponents import matches

GAMES = [GameShare("Nim"), GameShare("LiarsDice"), GameShare("ConnectFour")]


def games_of(names: Any, opponents: Any = ()) -> list[tuple[str, list[str]]]:
    return [(name, [share.id for share in shares]) for name, shares in matches(names, opponents, GAMES)]


def test_an_opponent_is_left_out_where_it_cannot_play() -> None:
    assert games_of(["perfect", "random", "alphabeta"]) == [
        ("perfect", ["Nim"]),
        ("random", ["Nim", "LiarsDice", "ConnectFour"]),
        ("alphabeta", ["ConnectFour"]),
    ]


def test_an_entry_of_opponents_brings_its_kind_its_settings_and_its_games() -> None:
    entries = [
        {"kind": "alphabeta", "name": "deep", "depth": 3},
        {"kind": "random", "name": "dice", "games": ["LiarsDice"]},
    ]
    assert games_of(["deep", "dice"], entries) == [("deep", ["ConnectFour"]), ("dice", ["LiarsDice"])]


@pytest.mark.parametrize(
    ("names", "opponents"),
    [
        ([], []),
        (["random", "perfect", "random"], []),
        (["gpt"], []),
        (["old"], [{"kind": "model", "name": "old", "path": "m"}]),
        (["random"], [{"kind": "random", "games": ["KuhnPoker"]}]),
        (["deep"], [{"kind": "alphabeta", "name": "deep", "depth": 99}]),
    ],
)
def test_an_opponent_that_cannot_validate_is_named(names: Any, opponents: Any) -> None:
    with pytest.raises(ValueError, match=r"^validation\.opponents"):
        games_of(names, opponents)


def test_every_opponent_plays_its_games_in_both_roles() -> None:
    rows = validation_rows(matches(["random", "perfect"], [], GAMES), 5, 2)
    seats = [(row["seat"]["opponent"], row["data_source"], Seat.from_row(row).trainable) for row in rows]
    wanted = [("random", game) for game in ("Nim", "LiarsDice", "ConnectFour")] + [("perfect", "Nim")]
    assert seats == [(*one, (role,)) for one in wanted for role in (0, 1) for _ in range(2)]
    assert [GameKey(**row["key"]).index for row in rows] == list(range(16))
