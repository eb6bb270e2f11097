"""Plays what an evaluation's plan lacks, many games at a time, and stores each as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from tqdm import tqdm

from ...games import GameFailure, make
from ...match import Rules, play
from ...players import Player
from ...players.api import BudgetSpent
from ...players.base import PlayerFailure
from ...players.records import GameRecord
from .matchups import PlannedGame
from .store import EvaluationStore

#: ``seat(policy's name, game's id)``: the policy's player for such a game.
Seat = Callable[[str, str], Player]


async def play_games(
    store: EvaluationStore,
    games: Sequence[PlannedGame],
    seat: Seat,
    rules: Rules,
    concurrency: int,
    void_retries: int,
    bar: tqdm,
) -> list[PlannedGame]:
    """Play games, and add each to the store when it has ended.

    A game in which a player, or the game itself, failed is stored as void, and played again with other randomness.

    Args:
        store: takes the games.
        games: what is missing, with the keys of their next tries.
        seat: makes the players.
        rules: of the match.
        concurrency: how many games are under way at a time.
        void_retries: how often a game is played again, in all starts of the evaluation together.
        bar: moves with each game that counts.

    Returns:
        The games that were void each time.

    Raises:
        BudgetSpent: an endpoint's budget is spent; what was played by then is stored.
        Exception: whatever else a player raises that is no such failure.
    """
    given_up: list[PlannedGame] = []
    waiting = iter(games)  # one for all workers

    async def work() -> None:
        for game in waiting:
            if await _play_until_it_counts(store, game, seat, rules, void_retries):
                bar.update()
            else:
                given_up.append(game)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(games))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return given_up


async def _play_until_it_counts(
    store: EvaluationStore, game: PlannedGame, seat: Seat, rules: Rules, void_retries: int
) -> bool:
    """False: the game was void each time."""
    first, second = (seat(name, game.match_up.game) for name in game.players)
    for retry in range(game.key.retry, void_retries + 1):
        record = await _play(replace(game, key=replace(game.key, retry=retry)), (first, second), rules)
        store.append(record)
        if record.discarded is None:
            return True
    return False


async def _play(game: PlannedGame, players: tuple[Player, Player], rules: Rules) -> GameRecord:
    game_id, key = game.match_up.game, game.key
    try:
        record = await play(key, game_id, make(game_id, key.game_seed()), players, (game.role,), rules)
    except BudgetSpent:
        raise
    except (PlayerFailure, GameFailure) as error:
        reason = f"{type(error).__name__}: {error}"
        record = GameRecord(key, game_id, game.players, (game.role,), discarded="void", reason=reason)
    record.opponent = game.match_up.opponent
    return record
