"""Traces of games for Weave (``trainer.weave``): a call for each game, and in it one for each turn.

They are made from the records when the games are over, so they have no times. Nothing is sent unless it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..extras import install
from ..players.records import GameRecord


def check(project: str | None) -> None:
    """See that Weave is installed, if traces are asked for.

    Raises:
        ImportError: it is not; the message says how to install it.
    """
    if project is not None and importlib.util.find_spec("weave") is None:
        raise ImportError(
            f"trainer.weave={project}: Weave is not installed: {install('weave')}, or set trainer.weave=null"
        )


class Traces:
    """Writes traces.

    Args:
        project: Weave's, as "name" or "entity/name"; it is created if need be.
        experiment: the run's name, an attribute of every call.
        games: the number of games of each step and of each validation that are traced.

    Raises:
        ImportError: Weave is not installed.
    """

    def __init__(self, project: str, experiment: str, games: int) -> None:
        check(project)
        weave = importlib.import_module("weave")

        self._client: Any = weave.init(project)
        self._experiment, self._games = experiment, games

    def write(self, split: str, step: int, records: Sequence[GameRecord]) -> None:
        """Trace the first games of a step (``split`` "train") or of a validation ("val")."""
        for record in sorted(records, key=lambda record: record.key)[: self._games]:
            self._game(split, step, record)

    def _game(self, split: str, step: int, record: GameRecord) -> None:
        attributes = {"experiment_name": self._experiment, "split": split, "step": step}
        inputs = {
            "game": record.game,
            "key": asdict(record.key),
            "players": list(record.players),
            "trained": list(record.trainable),
            "opponent": record.opponent,
        }
        game = self._client.create_call("game", inputs, attributes=attributes, use_stack=False)
        for turn in record.turns:
            seen = {"player": turn.player, "turn": turn.turn, "observation": turn.observation}
            call = self._client.create_call("turn", seen, parent=game, attributes=attributes, use_stack=False)
            answered = {
                "response": turn.response,
                "verdict": turn.verdict,
                "action": turn.action,
                "advantage": turn.advantage,
                "tokens": None if turn.tokens is None else len(turn.tokens.response_ids),
            }
            self._client.finish_call(call, output=answered)
        results = [record.result(player) for player in (0, 1)]
        output = {"rewards": list(record.rewards), "results": results, "termination": record.termination}
        self._client.finish_call(game, output={**output, "discarded": record.discarded})

    def finish(self) -> None:
        """Send what is left."""
        self._client.flush()
