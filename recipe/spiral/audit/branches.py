"""Whether a step has the branches that its games should have, and whether each goes on from a state of its game."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..players.records import GameRecord
from ..players.seeds import GameKey


def wrong_branches(
    games: Sequence[GameRecord], branches: Sequence[GameRecord], states: int, continuations: int
) -> Iterator[str]:
    """What is wrong, a line each.

    Args:
        games: of the step, those that count and are no branches; with their actions.
        branches: those of the step, void ones included.
        states: how many turns of each game are taken anew, at most.
        continuations: how many branches there are from each.
    """
    there: dict[GameKey, dict[int, GameRecord]] = defaultdict(dict)
    for branch in branches:
        there[replace(branch.key, branch=0)][branch.key.branch] = branch
    for record in games:
        places = [place for place, turn in enumerate(record.turns) if turn.player in record.trainable]
        played = there.pop(record.key, {})
        drawn = {key.branch: places[place] for key, place in record.key.branches(len(places), states, continuations)}
        if played.keys() != drawn.keys():
            yield f"game {record.key} of {record.game} has the branches {sorted(played)}, should have {sorted(drawn)}"
        for number in played.keys() & drawn.keys():
            past = [turn.action for turn in record.turns[: drawn[number]]]
            if played[number].discarded is None and played[number].past != past:
                yield f"game {played[number].key} of {record.game} does not go on from the game's turn {drawn[number]}"
    for key in there:
        yield f"game {key} has branches, and does not count"
