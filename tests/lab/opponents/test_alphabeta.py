"""The alpha-beta player of Connect Four: against plain minimax, and against chance."""

from __future__ import annotations

import itertools
import random

import pytest

from recipe.spiral.games import make
from recipe.spiral.games.connect_four import ConnectFour
from recipe.spiral.lab.opponents.alphabeta import AlphaBetaPlayer, best_actions, check_game
from recipe.spiral.players.player import Player, RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match


def at_random(seed: int, moves: int) -> ConnectFour:
    """A position after some random moves, none of which ends the game; after fewer if need be."""
    game, rng = ConnectFour(0), random.Random(seed)
    for _ in range(moves):
        actions = game.legal_actions()
        for action in rng.sample(actions, len(actions)):
            branch = game.copy()
            branch.step(action)
            if not branch.is_terminal:
                game = branch
                break
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
    player, discs = game.current_player, sum(map(len, game.columns))
    if not game.legal_actions():
        return 0
    branches = [game.copy() for _ in game.legal_actions()]
    for branch, action in zip(branches, game.legal_actions(), strict=True):
        branch.step(action)
    if any(branch.winner == player for branch in branches):
        return 10_000 - discs
    if depth == 0:
        return open_lines(game, player) - open_lines(game, 1 - player)
    return max(-minimax(branch, depth - 1) for branch in branches)


def by_minimax(game: ConnectFour, depth: int) -> set[str]:
    values = {}
    for action in game.legal_actions():
        branch = game.copy()
        branch.step(action)
        values[action] = 10_000 if branch.winner == game.current_player else -minimax(branch, depth - 1)
    return {action for action, value in values.items() if value == max(values.values())}


@pytest.mark.parametrize(("depth", "positions"), [(1, 30), (2, 8), (3, 2)])
def test_the_best_moves_are_those_of_plain_minimax(depth: int, positions: int) -> None:
    for seed in range(positions):
        game = at_random(seed, moves=5 * seed % 41)
        assert {*best_actions(game, depth)} == by_minimax(game, depth)


def against_chance(depth: int, role: int, games: int) -> list[GameRecord]:
    strong, weak = AlphaBetaPlayer(depth), RandomPlayer()
    seats: list[Player] = [strong, weak] if role == 0 else [weak, strong]
    keys = [GameKey("val", 9, 0, index) for index in range(games)]
    return [run_match(make("ConnectFour", key.game_seed()), seats, key=key) for key in keys]


@pytest.mark.parametrize("role", [0, 1])
def test_it_beats_chance_even_with_a_short_look(role: int) -> None:
    games = against_chance(2, role, 100)
    assert sum(game.result(role) == "win" for game in games) >= 95
    assert len({tuple(turn.action for turn in game.turns) for game in games}) > 90


def test_it_says_what_it_does_not_play() -> None:
    check_game("ConnectFour-v0")
    with pytest.raises(ValueError, match="Nim"):
        check_game("Nim")
    for depth in (0, 13, True, 2.5, "6"):
        with pytest.raises(ValueError, match="depth"):
            AlphaBetaPlayer(depth)  # type: ignore[arg-type]
