"""Perfect play: against brute force over every position, and against every possible opponent."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from recipe.spiral.games import Game, make
from recipe.spiral.games.kuhn_poker import CARDS, KuhnPoker
from recipe.spiral.games.nim import Nim
from recipe.spiral.games.tictactoe import TicTacToe
from recipe.spiral.lab.opponents.perfect import GAMES, PerfectPlayer, check_game, optimal_actions
from recipe.spiral.lab.opponents.perfect.kuhn import strategy
from recipe.spiral.players.player import Player, RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match


def games_between(first: Player, second: Player, game_id: str, games: int) -> list[GameRecord]:
    keys = [GameKey("val", 5, 0, index) for index in range(games)]
    return [run_match(make(game_id, key.game_seed()), [first, second], key=key) for key in keys]


def branches(game: Game) -> Iterator[tuple[str, Game]]:
    for action in game.legal_actions():
        branch = game.copy()
        branch.step(action)
        yield action, branch


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


def outcomes_of_chance(before: KuhnPoker, after: KuhnPoker) -> Iterator[tuple[KuhnPoker, float]]:
    """After a move: the game itself, or where a new round begins, it with every deal."""
    if after.is_terminal or after.round == before.round:
        yield after, 1.0
        return
    yield from every_deal(after)


def every_deal(game: KuhnPoker) -> Iterator[tuple[KuhnPoker, float]]:
    for cards in itertools.permutations(CARDS, 2):
        branch = game.copy()
        branch.cards = cards
        yield branch, 1 / 6


def after(game: KuhnPoker, action: str) -> list[tuple[KuhnPoker, float]]:
    branch = game.copy()
    branch.step(action)
    return [*outcomes_of_chance(game, branch)]


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


ALPHAS = [0.0, 1 / 6, 1 / 3]


@pytest.mark.parametrize(
    ("rounds", "alpha"),
    [*((1, alpha) for alpha in ALPHAS), (2, ALPHAS[0]), pytest.param(3, ALPHAS[0], marks=pytest.mark.full)],
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


def test_it_says_what_it_does_not_play() -> None:
    for game_id in (*GAMES, "TicTacToe-v0"):  # aliases count
        check_game(game_id)
    with pytest.raises(ValueError, match="ConnectFour"):
        check_game("ConnectFour")
    with pytest.raises(ValueError, match=r"alpha=0.4"):
        PerfectPlayer(0.4)
