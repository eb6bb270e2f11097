"""A benchmark's questions as rows of a run's validation set, beside its games: a row is one answer.

verl puts a batch together column by column, so that a question has every column of a game, and a game has ``sampling``.
A question is launched under a key as games are, with a split of its own, and is accounted for by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...players.seats import Opponent, Seat
from ...players.seeds import GameKey
from .entries import AnswerRequest

AGENT = "spiral_question"
#: The split of questions' keys.
SPLIT = "question"
#: Stands before the benchmark's id in a row's ``data_source``, so that no benchmark is taken for a game.
SOURCE = "benchmark/"
#: A game's ``sampling``: verl's is used.
_VERLS = {"seed": None, "temperature": None, "top_p": None, "max_tokens": None}


def with_questions(
    games: Iterable[Mapping[str, Any]], requests: Sequence[AnswerRequest], run_seed: int
) -> list[dict[str, Any]]:
    """The rows of games, and after them one row for each answer; all with the same columns.

    ``key.index`` of a question's row is its place in ``requests``.
    """
    rows = [{**row, "sampling": dict(_VERLS)} for row in games]
    return rows + [_row(request, place, len(rows) + place, run_seed) for place, request in enumerate(requests)]


def _row(request: AnswerRequest, place: int, index: int, run_seed: int) -> dict[str, Any]:
    entry = request.entry
    return {
        "raw_prompt": request.question.prompt,
        "index": index,
        "agent_name": AGENT,
        "data_source": f"{SOURCE}{entry.id}",
        "game": "",
        "template": entry.template or "",
        "style": "",
        "key": GameKey(SPLIT, run_seed, 0, place).to_dict(),
        **Seat(Opponent("", ""), (0,)).columns(),  # one session
        "sampling": {
            "seed": request.seed,
            "temperature": float(entry.temperature),
            "top_p": float(entry.top_p),
            "max_tokens": entry.max_tokens,
        },
    }
