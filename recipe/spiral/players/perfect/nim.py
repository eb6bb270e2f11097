"""Nim by its theory: who is to move loses exactly if the piles' binary sum without carry is 0 (Bouton, 1901)."""

from __future__ import annotations

from functools import reduce
from operator import xor

from ...games.nim import Nim


def optimal_actions(game: Nim) -> tuple[str, ...]:
    """The actions that leave a nim-sum of 0; where there are none all are as good, and all are given."""
    actions, total = game.legal_actions(), reduce(xor, game.piles, 0)
    winning = []
    for action in actions:
        pile, count = map(int, action.strip("[]").split())
        size = game.piles[pile]
        if total ^ size ^ (size - count) == 0:
            winning.append(action)
    return tuple(winning) or actions
