"""Computed players: perfect play against brute force and every possible opponent, alpha-beta against plain minimax."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from recipe.spiral.games import Game, known_games, make
from recipe.spiral.games.connect_four import ConnectFour
from recipe.spiral.games.kuhn_poker import CARDS, KuhnPoker
from recipe.spiral.games.nim import Nim
from recipe.spiral.games.tictactoe import TicTacToe
from recipe.spiral.lab.opponents import check, make_player
from recipe.spiral.lab.opponents.alphabeta import best_actions
from recipe.spiral.lab.opponents.kuhn_equilibrium import strategy
from recipe.spiral.lab.opponents.perfect import GAMES, PerfectPlayer, optimal_actions
from recipe.spiral.players.player import Player, RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match


def games_between(first: Player, second: Player, game_id: str, games: int) -> list[GameRecord]:
    keys = [GameKey("val", 5, 0, index) for index in range(games)]
    return [run_match(make(game_id, key.game_seed()), [first, second], key=key) for key in keys]


def branches(game: Any) -> Iterator[tuple[str, Any]]:
    for action in game.legal_actions():
        branch = game.copy()
        branch.step(action)
        yield action, branch


# -- by kind -----------------------------------------------------------------------------------------------------------


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
            game = make(game_id, random.Random(game_id).randrange(100))
            record = run_match(game, [make_player(kind), RandomPlayer()], key=GameKey("val", 1, 0, 0))
            assert record.termination == "rules"
    wanted = {"random": known_games(), "perfect": GAMES, "alphabeta": ("ConnectFour",)}
    assert tuple(playable) == wanted[kind]


@pytest.mark.parametrize(
    ("kind", "settings", "setting"),
    [
        ("stockfish", {}, "stockfish"),
        ("perfect", {"alfa": 0}, "alfa"),
        ("perfect", {"alpha": 1}, "alpha=1"),
        ("alphabeta", {"depth": 0}, "depth=0"),
        ("alphabeta", {"depth": 2.5}, r"depth=2\.5"),
        ("api", {"model": "m", "api_key": "sk-1"}, "api_key"),
    ],
)
def test_what_is_wrong_is_refused(kind: str, settings: dict[str, Any], setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        check(kind, settings, [])


# -- perfect play ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", [TicTacToe(0), Nim(0), Nim(0, (1, 2, 3)), Nim(0, (2, 2)), Nim(0, (4,))])
def test_every_reachable_position_against_brute_force(game: Game) -> None:
    """Which actions keep the value, by a plain minimax on the game's own rules."""
    seen: dict[str, float] = {}

    def outcome(game: Game) -> float:
        """Player 0's, by minimax."""
        state = f"{game.current_player} {game.render()}"
        if state not in seen:
            if game.is_terminal:
                best, wanted = game.rewards()[0], set[str]()
            else:
                outcomes = {action: outcome(branch) for action, branch in branches(game)}
                best = (max if game.current_player == 0 else min)(outcomes.values())
                wanted = {action for action, worth in outcomes.items() if worth == best}
            assert {*optimal_actions(game)} == wanted
            seen[state] = best
        return seen[state]

    outcome(game)
    if isinstance(game, TicTacToe):
        assert len(seen) == 5478, "all of them"


def every_deal(game: KuhnPoker) -> Iterator[tuple[KuhnPoker, float]]:
    for cards in itertools.permutations(CARDS, 2):
        branch = game.copy()
        branch.cards = cards
        yield branch, 1 / 6


def after(game: KuhnPoker, action: str) -> list[tuple[KuhnPoker, float]]:
    """After a move: the game itself, or where a new round begins, it with every deal."""
    branch = game.copy()
    branch.step(action)
    return [(branch, 1.0)] if branch.is_terminal or branch.round == game.round else [*every_deal(branch)]


def best_response(nodes: list[tuple[KuhnPoker, float]], responder: int, alpha: float) -> float:
    """What the best of all opponents gets against the strategy: it knows it, and decides by its own observations."""
    total = 0.0
    decisions: dict[str, list[tuple[KuhnPoker, float]]] = defaultdict(list)
    while nodes:
        game, weight = nodes.pop()
        if game.is_terminal:
            total += weight * game.rewards()[responder]
        elif game.current_player == responder:
            decisions[game.observation(responder)].append((game, weight))
        else:
            for action, probability in strategy(game, 1 - responder, alpha).items():
                nodes += [(next_, weight * probability * chance) for next_, chance in after(game, action)]
    for group in decisions.values():
        total += max(
            best_response(
                [(next_, weight * chance) for game, weight in group for next_, chance in after(game, action)],
                responder,
                alpha,
            )
            for action in group[0][0].legal_actions()
        )
    return total


@pytest.mark.parametrize(
    ("rounds", "alpha"), [(1, 0.0), (1, 1 / 6), (1, 1 / 3), (2, 0.0), pytest.param(3, 0.0, marks=pytest.mark.full)]
)
def test_no_opponent_gets_more_than_the_value_of_kuhn_poker(rounds: int, alpha: float) -> None:
    """Best responses by enumeration, over the game itself and what it shows: the exploitability is 0.

    Two rounds are fair: each starts once.
    """
    first, second = (best_response([*every_deal(KuhnPoker(0, rounds))], responder, alpha) for responder in (0, 1))
    assert first == pytest.approx({1: -1 / 36, 2: 0.0, 3: -1 / 228}[rounds], abs=1e-8)
    assert first + second == pytest.approx(0, abs=1e-8)


def test_draws_have_the_strategys_probabilities() -> None:
    """Over many keys: a jack in the first seat is bet a third of the time with alpha 1/3, never with alpha 0."""

    @cache
    def bets(alpha: float, card: str) -> float:
        games = games_between(PerfectPlayer(alpha), RandomPlayer(), "KuhnPoker", 700)
        first = [game.turns[0].action for game in games if f"card: {card}" in game.turns[0].observation]
        return first.count("[bet]") / len(first)

    assert bets(1 / 3, "J") == pytest.approx(1 / 3, abs=0.1)
    assert bets(1 / 3, "Q") == 0
    assert bets(1 / 3, "K") == 1
    assert bets(0, "J") == bets(0, "K") == 0


# -- alpha-beta --------------------------------------------------------------------------------------------------------


def at_random(seed: int, moves: int) -> ConnectFour:
    """A position after some random moves, none of which ends the game; after fewer if need be."""
    game, rng = ConnectFour(0), random.Random(seed)
    for _ in range(moves):
        going_on = [branch for _, branch in branches(game) if not branch.is_terminal]
        game = rng.choice(going_on) if going_on else game
    return game


def open_lines(game: ConnectFour, player: int) -> int:
    """Lines of four that only this player has discs in: 1 for two discs, 5 for three."""
    cells = {(x, y): owner for x, discs in enumerate(game.columns) for y, owner in enumerate(discs)}
    total = 0
    for x, y, (dx, dy) in itertools.product(range(7), range(6), ((0, 1), (1, 0), (1, 1), (1, -1))):
        line = [(x + k * dx, y + k * dy) for k in range(4)]
        if all(0 <= a < 7 and 0 <= b < 6 for a, b in line):
            owners = [cells.get(cell) for cell in line]
            total += {2: 1, 3: 5}.get(owners.count(player), 0) * (1 - player not in owners)
    return total


def minimax(game: ConnectFour, depth: int) -> int:
    """The value for the player who is to move; a win that is one move away is seen at every depth."""
    player, discs, after_moves = game.current_player, sum(map(len, game.columns)), [one for _, one in branches(game)]
    if not after_moves:
        return 0
    if any(branch.winner == player for branch in after_moves):
        return 10_000 - discs
    if depth == 0:
        return open_lines(game, player) - open_lines(game, 1 - player)
    return max(-minimax(branch, depth - 1) for branch in after_moves)


@pytest.mark.parametrize(("depth", "positions"), [(1, 30), (2, 8), (3, 2)])
def test_the_best_moves_are_those_of_plain_minimax(depth: int, positions: int) -> None:
    for seed in range(positions):
        game = at_random(seed, moves=5 * seed % 41)
        values = {
            action: 10_000 if branch.winner == game.current_player else -minimax(branch, depth - 1)
            for action, branch in branches(game)
        }
        assert {*best_actions(game, depth)} == {a for a, value in values.items() if value == max(values.values())}
