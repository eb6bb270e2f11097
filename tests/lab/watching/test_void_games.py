"""Void games are said, and an opponent that stays silent stops the run."""

from __future__ import annotations

from recipe.spiral.lab.watching.void_games import VoidGames
from recipe.spiral.players.records import GameRecord, Turn
from recipe.spiral.players.seeds import GameKey


def against(step: int, index: int, reason: str | None = None, answers: bool = False, retry: int = 0) -> GameRecord:
    """A game of the policy's against gpt: void for a reason, or lost before, or after, gpt has answered."""
    turns = [Turn(player, 0, "", "", "legal") for player in range(1 + answers)] if reason is None else []
    void = {"discarded": "void", "reason": reason} if reason is not None else {}
    key = GameKey("train", 3, step, index, retry)
    return GameRecord(key, "TicTacToe", ("policy", "gpt"), (0,), turns, opponent="gpt", **void)


def test_void_games_are_said_and_an_opponent_that_stays_silent_stops_the_run() -> None:
    voids = VoidGames(2)
    assert voids.count([against(1, 0, "no money"), against(1, 1, "left alone"), against(1, 2)]) == [
        "gpt: 2 of its 3 games were void, the first: no money"
    ]
    assert voids.count([against(2, 0, "busy"), against(2, 0, answers=True, retry=1)]) == [
        "gpt: 1 of its 1 games were void, the first: busy"
    ]
    voids.count([against(3, 0, "no money")])
    voids.count([])
    voids.count([against(5, 0)])
    assert not voids.silent, "it was not asked"
    voids.count([against(6, 0, "still no money"), against(6, 1)])
    assert voids.silent == "max_void_steps=2: gpt: 1 of its 2 games were void, the first: still no money"
