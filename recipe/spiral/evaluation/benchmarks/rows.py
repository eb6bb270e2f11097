"""A benchmark's questions as rows of a run's validation set, beside its games: a row is one answer.

verl puts a batch together column by column, so that a question has every column of a game, and a game has ``sampling``.
A question is launched under a key as games are, with a split of its own, and is accounted for by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...play.seats import Opponent, Seat
from ...play.seeds import GameKey
from .asked import Asked, general_template

__all__ = ["AGENT", "SOURCE", "SPLIT", "general_template", "with_questions"]

AGENT = "spiral_question"
#: Of questions' keys.
SPLIT = "question"
#: Before the benchmark's id in a row's ``data_source``, so that no game is taken for one.
SOURCE = "benchmark/"
#: A game is sampled as verl says.
_VERLS = {"seed": None, "temperature": None, "top_p": None, "max_tokens": None}


def with_questions(games: Iterable[Mapping[str, Any]], asked: Sequence[Asked], run_seed: int) -> list[dict[str, Any]]:
    """The rows of games, and after them one row for each answer; all with the same columns.

    ``key.index`` of a question's row is its place in ``asked``.
    """
    rows = [{**row, "sampling": dict(_VERLS)} for row in games]
    return rows + [_row(one, place, len(rows) + place, run_seed) for place, one in enumerate(asked)]


def _row(one: Asked, place: int, index: int, run_seed: int) -> dict[str, Any]:
    entry = one.entry
    return {
        "raw_prompt": one.question.prompt,
        "index": index,
        "agent_name": AGENT,
        "data_source": f"{SOURCE}{entry.id}",
        "game": "",
        "template": entry.template or "",
        "style": "",
        "key": GameKey(SPLIT, run_seed, 0, place).to_dict(),
        **Seat(Opponent("", ""), (0,)).columns(),  # one session
        "sampling": {
            "seed": one.seed,
            "temperature": float(entry.temperature),
            "top_p": float(entry.top_p),
            "max_tokens": entry.max_tokens,
        },
    }
