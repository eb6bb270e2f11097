"""Opponents by kind and settings: they can be made, they play, and what cannot be is said beforehand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from recipe.spiral.games import known_games, make
from recipe.spiral.lab.opponents.more_kinds import check, make_player
from recipe.spiral.lab.opponents.perfect import GAMES
from recipe.spiral.players.player import RandomPlayer
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match

API = {"model": "some/model", "base_url": "https://somewhere.example/v1", "api_key_env": "SOME_KEY"}


@pytest.mark.parametrize("kind", ["random", "perfect", "alphabeta"])
def test_a_game_that_passes_the_check_can_be_played(kind: str) -> None:
    playable = []
    for game_id in known_games():
        try:
            check(kind, {}, [game_id])
        except ValueError:
            continue
        playable.append(game_id)
        if game_id not in ("DontSayIt", "WordChains", "SpellingBee"):  # want a word list
            player, seed = make_player(kind), random.Random(game_id).randrange(100)
            record = run_match(make(game_id, seed), [player, RandomPlayer()], key=GameKey("val", seed, 0, 0))
            assert record.termination == "rules"
    wanted = {"random": known_games(), "perfect": GAMES, "alphabeta": ("ConnectFour",)}
    assert tuple(playable) == wanted[kind]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("stockfish", {}, "stockfish"),
        ("perfect", {"alfa": 0}, "alfa"),
        ("perfect", {"alpha": 1}, "alpha=1"),
        ("alphabeta", {"depth": 0}, "depth=0"),
        ("api", {**API, "template": "octothinker"}, "template"),
        ("api", {**API, "api_key": "sk-1"}, "api_key"),
    ],
)
def test_what_is_wrong_is_said_by_both(kind: str, settings: dict[str, Any], message: str) -> None:
    for attempt in (lambda: check(kind, settings, []), lambda: make_player(kind, settings)):
        with pytest.raises(ValueError) as info:
            attempt()
        assert message in str(info.value)
