"""A game for people: the table after each turn, drawn by the game itself, and what each player answered."""

from __future__ import annotations

from typing import Any

from ..games import Game, make
from ..games.base import TEXTARENA
from ..players.records import GameRecord, Turn

#: The largest number of characters of a drawing.
_LARGEST = 20_000
#: What the page shows of a record and of a turn as it is.
_OF_RECORD = (
    *("game", "past", "players", "trainable", "opponent", "termination", "rewards", "baselines", "discarded"),
    "reason",
)
_OF_TURN = (*("player", "turn", "observation", "response", "verdict", "action", "truncated", "advantage", "left_out"),)


def replay(record: GameRecord) -> dict[str, Any]:
    """The game as its page takes it. ``tables`` has the drawing before the first turn, and after each; None where the
    game cannot be played again here."""
    return {
        "key": str(record.key),
        "branch": record.key.branch,
        **{name: getattr(record, name) for name in _OF_RECORD},
        "turns": [_turn(turn) for turn in record.turns],
        "tables": _tables(record),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    shown = {name: getattr(turn, name) for name in _OF_TURN}
    shown["used"] = None if turn.usage is None else turn.usage.tokens
    if (tokens := turn.tokens) is not None:
        shown |= {
            "tokens": len(tokens.response_ids),
            "prompt_tokens": len(tokens.prompt_ids),
            "log_prob": None if tokens.log_probs is None else round(sum(tokens.log_probs), 4),
            "weights": tokens.weight_versions,
            "answered_by": tokens.answered_by,
        }
    return shown


def _tables(record: GameRecord) -> list[str | None]:
    """Played again from its key; only as far as the players saw what they saw then."""
    tables: list[str | None] = [None] * (len(record.turns) + 1)
    if record.game.startswith(TEXTARENA):  # its environments draw nothing, and some cannot be made anew
        return tables
    try:
        # Validation's games are the same at every step, and only named after it.
        key = record.key.at_step(0) if record.key.split == "val" else record.key
        game = make(record.game, key.game_seed())
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
    except Exception:
        pass  # a game of another version, or of a package that is not installed: the texts are there all the same
    return tables


def _drawn(game: Game) -> str:
    return game.render()[:_LARGEST]
