"""A game for people: the table after each turn, drawn by the game itself, and what each player answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..games import Game, make
from ..games.base import TEXTARENA
from ..players.records import GameRecord, Turn

#: The largest number of characters of a drawing.
_LARGEST = 20_000


def replay(record: GameRecord) -> dict[str, Any]:
    """The game as its page takes it. ``tables`` has the drawing before the first turn, and after each; None where the
    game cannot be played again here."""
    return {
        "key": str(record.key),
        "game": record.game,
        "branch": record.key.branch,
        "past": list(record.past),
        "players": list(record.players),
        "trainable": list(record.trainable),
        "opponent": record.opponent,
        "termination": record.termination,
        "rewards": list(record.rewards),
        "baselines": list(record.baselines),
        "discarded": record.discarded,
        "reason": record.reason,
        "turns": [_turn(turn) for turn in record.turns],
        "tables": _tables(record),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    tokens = turn.tokens
    more: Mapping[str, Any] = {}
    if tokens is not None:
        log_prob = None if tokens.log_probs is None else round(sum(tokens.log_probs), 4)
        more = {
            "tokens": len(tokens.response_ids),
            "prompt_tokens": len(tokens.prompt_ids),
            "log_prob": log_prob,
            "weights": tokens.weight_versions,
            "answered_by": tokens.answered_by,
        }
    usage = None if turn.usage is None else turn.usage.tokens
    return {
        "player": turn.player,
        "turn": turn.turn,
        "observation": turn.observation,
        "response": turn.response,
        "verdict": turn.verdict,
        "action": turn.action,
        "truncated": turn.truncated,
        "advantage": turn.advantage,
        "left_out": turn.left_out,
        "used": usage,
        **more,
    }


def _tables(record: GameRecord) -> list[str | None]:
    """Played again from its key; only as far as the players saw what they saw then."""
    tables: list[str | None] = [None] * (len(record.turns) + 1)
    if record.game.startswith(TEXTARENA):  # its environments draw nothing, and some cannot be made anew
        return tables
    try:
        game = make(record.game, _seed(record))
        for action in record.past:
            game.step(action)
        for place, turn in enumerate(record.turns):
            if game.is_terminal or game.observation(turn.player) != turn.observation:
                return tables
            tables[place] = _drawn(game)
            if turn.verdict != "legal" or turn.action is None:
                break
            game.step(turn.action)
            tables[place + 1] = _drawn(game)
        if not record.turns:
            tables[0] = _drawn(game)
    except (
        Exception
    ):  # a game of another version, or of a package that is not installed: the texts are there all the same
        return tables
    return tables


def _seed(record: GameRecord) -> int:
    """Validation's games are the same at every step, and only named after it."""
    key = record.key
    return (key.at_step(0) if key.split == "val" else key).game_seed()


def _drawn(game: Game) -> str:
    return game.render()[:_LARGEST]
