"""Games of an evaluation, made for tests."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.matches.matchups import MatchUp, Plan, PlannedGame, Randomness
from recipe.spiral.lab.evaluation.matches.store import Manifest
from recipe.spiral.lab.evaluation.ratings.davidson import ELO
from recipe.spiral.lab.evaluation.ratings.game_results import GameResult, Outcome
from recipe.spiral.match import Rules, play
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord
from tests.made import turn

REWARDS: dict[Outcome, tuple[float, float]] = {"win": (1.0, -1.0), "draw": (0.0, 0.0), "loss": (-1.0, 1.0)}


def manifest(*names: str, seed: int = 0, randomness: Randomness = "shared", **settings: object) -> Manifest:
    return Manifest(seed, randomness, {name: {"kind": "random"} for name in names}, settings)


def plan(n: int = 2, *match_ups: tuple[str, str, str], seed: int = 0, randomness: Randomness = "shared") -> Plan:
    chosen = match_ups or (("a", "random", "TicTacToe"), ("b", "random", "TicTacToe"))
    return Plan(tuple(MatchUp(*one) for one in chosen), n, seed, randomness)


def game_of(game: PlannedGame, outcome: Outcome = "win", **more: object) -> GameRecord:
    """How a planned game ended for the policy."""
    rewards = REWARDS[outcome] if game.id.role == 0 else REWARDS[outcome][::-1]
    turns = [turn(0, 0), turn(1, 0)]
    return GameRecord(  # type: ignore[arg-type]
        game.key, game.id.game, game.players, (game.id.role,), turns, rewards=rewards, **more
    )


def at_random(game: PlannedGame) -> GameRecord:
    """A planned game, played by random players of those names."""
    players = []
    for name in game.players:
        player = RandomPlayer()
        player.name = name
        players.append(player)
    fresh = make(game.id.game, game.key.game_seed())
    return asyncio.run(play(game.key, game.id.game, fresh, players, (game.id.role,), Rules()))


def losing(game: PlannedGame) -> GameRecord:
    """A planned game that the policy ends with a turn that is not legal."""
    mine, theirs = turn(game.id.role, 0, "illegal"), turn(0, 0)
    turns = [mine] if game.id.role == 0 else [theirs, mine]
    rewards = (-1.5, 0.5) if game.id.role == 0 else (0.5, -1.5)
    return GameRecord(game.key, game.id.game, game.players, (game.id.role,), turns, "illegal", rewards)


def planted(
    strengths: Mapping[str, float],
    n: int,
    seed: int = 0,
    games: Sequence[tuple[str, float, float]] = (("TicTacToe", 0.0, -20.0),),
    bonus: Mapping[tuple[str, str], float] | None = None,
) -> Iterator[GameResult]:
    """A round robin by Davidson's model.

    Args:
        strengths: in Elo.
        n: games of each pair, seating and game.
        seed: of the results.
        games: (id, first-player advantage in Elo, inclination to draws).
        bonus: what a player's strength is beyond its own against another one, in Elo.
    """
    rng, bonus = random.Random(seed), bonus or {}
    number = 0
    for one, two in combinations(strengths, 2):
        for first, second in ((one, two), (two, one)):
            for game, advantage, inclination in games:
                d = strengths[first] - strengths[second] + advantage
                d += bonus.get((first, second), 0.0) - bonus.get((second, first), 0.0)
                weights = [math.exp(log_odds) for log_odds in (d / ELO / 2, inclination, -d / ELO / 2)]
                for outcome in rng.choices(("win", "draw", "loss"), weights, k=n):
                    yield GameResult(first, second, game, outcome, (0, number))
                    number += 1
