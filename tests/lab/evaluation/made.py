"""Games of an evaluation, made for tests."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.evaluation_folder import Manifest
from recipe.spiral.lab.evaluation.matches import GameId, Plan
from recipe.spiral.lab.evaluation.ratings import ELO, Outcomes
from recipe.spiral.lab.evaluation.settings import Randomness
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import RandomPlayer
from recipe.spiral.players.records import GameRecord, Result
from tests.made import turn

REWARDS: dict[Result, tuple[float, float]] = {"win": (1.0, -1.0), "draw": (0.0, 0.0), "loss": (-1.0, 1.0)}


def manifest(*names: str, seed: int = 0, **settings: object) -> Manifest:
    return Manifest(seed, "shared", {name: {"kind": "random"} for name in names}, settings)


def plan(n: int = 2, *match_ups: tuple[str, str, str], seed: int = 0, randomness: Randomness | None = None) -> Plan:
    chosen = match_ups or (("a", "random", "TicTacToe"), ("b", "random", "TicTacToe"))
    return Plan(chosen, (), n, seed, randomness or Randomness.shared)


def game_of(game: GameId, outcome: Result = "win", **more: object) -> GameRecord:
    """How a planned game ended for the policy."""
    rewards = REWARDS[outcome] if game.role == 0 else REWARDS[outcome][::-1]
    turns, key = [turn(0, 0), turn(1, 0)], plan().key(game)
    return GameRecord(key, game.game, game.players, (game.role,), turns, rewards=rewards, **more)  # type: ignore[arg-type]


def at_random(game: GameId) -> GameRecord:
    """A planned game, played by random players of those names."""
    players = []
    for name in game.players:
        player = RandomPlayer()
        player.name = name
        players.append(player)
    key = plan().key(game)
    return asyncio.run(play(key, game.game, make(game.game, key.game_seed()), players, (game.role,), Rules()))


def losing(game: GameId) -> GameRecord:
    """A planned game that the policy ends with a turn that is not legal."""
    mine, theirs = turn(game.role, 0, "illegal"), turn(0, 0)
    turns = [mine] if game.role == 0 else [theirs, mine]
    rewards = (-1.5, 0.5) if game.role == 0 else (0.5, -1.5)
    return GameRecord(plan().key(game), game.game, game.players, (game.role,), turns, "illegal", rewards)


def planted(
    strengths: Mapping[str, float],
    n: int,
    seed: int = 0,
    games: Sequence[tuple[str, float, float]] = (("TicTacToe", 0.0, -20.0),),
) -> Outcomes:
    """A round robin by Davidson's model.

    Args:
        strengths: in Elo.
        n: games of each pair, seating and game.
        seed: of the results.
        games: (id, first-player advantage in Elo, inclination to draws).
    """
    rng, found = random.Random(seed), {}
    for one, two in combinations(strengths, 2):
        for first, second in ((one, two), (two, one)):
            for game, advantage, inclination in games:
                d = strengths[first] - strengths[second] + advantage
                weights = [math.exp(log_odds) for log_odds in (d / ELO / 2, inclination, -d / ELO / 2)]
                drawn = Counter(rng.choices((0, 1, 2), weights, k=n))
                found[first, second, game] = (drawn[0], drawn[1], drawn[2])
    return found
