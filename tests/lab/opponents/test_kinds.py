"""Opponents by kind and settings: they can be made, they play, and what cannot be is said beforehand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from recipe.spiral.games import UnknownGame, known_games, make
from recipe.spiral.lab.opponents.alphabeta import AlphaBetaPlayer
from recipe.spiral.lab.opponents.api.endpoint_player import ApiPlayer
from recipe.spiral.lab.opponents.more_kinds import KINDS, check, make_player
from recipe.spiral.lab.opponents.perfect import GAMES, PerfectPlayer
from recipe.spiral.players.player import PlayerMisconfigured
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match

API = {"model": "some/model", "base_url": "https://somewhere.example/v1", "api_key_env": "SOME_KEY"}


@pytest.mark.parametrize(
    ("kind", "settings", "player", "name"),
    [
        ("random", None, RandomPlayer, "random"),
        ("random", {}, RandomPlayer, "random"),
        ("perfect", {}, PerfectPlayer, "perfect"),
        ("perfect", {"alpha": 0.2}, PerfectPlayer, "perfect"),
        ("alphabeta", {"depth": 3}, AlphaBetaPlayer, "alphabeta-3"),
        ("api", API, ApiPlayer, "api"),
    ],
)
def test_every_kind_can_be_made(kind: str, settings: dict[str, Any] | None, player: type, name: str) -> None:
    if kind == "api":
        pytest.importorskip("openai", reason="needs the extra 'api'")
    check(kind, settings, [])
    assert type(make_player(kind, settings)) is player
    assert make_player(kind, settings).name == name
    assert make_player(kind, settings, name="mine").name == "mine"
    assert make_player(kind, settings).name == name, "a name is one player's own"


def test_settings_arrive() -> None:
    pytest.importorskip("openai", reason="needs the extra 'api'")
    player = make_player("api", {**API, "max_concurrency": 3, "budget_tokens": 7})
    assert isinstance(player, ApiPlayer)
    assert (player.settings.max_concurrency, player.settings.budget_tokens) == (3, 7)
    perfect = make_player("perfect", {"alpha": 0})
    assert isinstance(perfect, PerfectPlayer)
    assert perfect.alpha == 0


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
        ("stockfish", {}, "'stockfish' is no kind of fixed player; known kinds: random, perfect, alphabeta, api"),
        ("model", {}, "'model' is no kind of fixed player"),
        ("random", {"depth": 3}, "depth: no setting of the kind 'random'; it has no settings"),
        ("perfect", {"alfa": 0}, "alfa: no setting of the kind 'perfect'; it has alpha"),
        ("perfect", {"alpha": 1}, "alpha=1: must be from 0 to 1/3"),
        ("perfect", {"alpha": "much"}, "alpha='much': must be a number from 0 to 1/3"),
        ("alphabeta", {"depth": 0}, "depth=0: must be a whole number from 1 to 12"),
        ("api", {}, "missing mandatory value: model"),
        ("api", {**API, "template": "octothinker"}, "template='octothinker': does not go with a chat endpoint"),
        ("api", {**API, "base_url": "somewhere"}, "base_url: must be an http"),
        ("api", {**API, "api_key": "sk-1"}, "'api_key' not in 'ApiSettings'"),
    ],
)
def test_what_is_wrong_is_said_by_both(kind: str, settings: dict[str, Any], message: str) -> None:
    for attempt in (lambda: check(kind, settings, []), lambda: make_player(kind, settings)):
        with pytest.raises(ValueError) as info:
            attempt()
        assert message in str(info.value)


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(PlayerMisconfigured, match="SOME_KEY"):
        check("api", API, ["TicTacToe"])
    check("api", {**API, "api_key_env": None}, ["TicTacToe"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'openai>=2"):
        check("api", {**API, "api_key_env": None}, ["TicTacToe"])


def test_games_are_checked() -> None:
    check("perfect", {}, ["TicTacToe", "Nim", "KuhnPoker"])
    with pytest.raises(ValueError, match="ConnectFour has no perfect player; the games that have one are KuhnPoker, "):
        check("perfect", {}, ["TicTacToe", "ConnectFour"])
    for kind in KINDS:
        with pytest.raises(UnknownGame, match="Chess"):
            check(kind, API if kind == "api" else {}, ["Chess"])
