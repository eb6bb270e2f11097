"""Equilibria that are known in closed form: Kuhn poker's (Kuhn, 1950)."""

from __future__ import annotations

from ..games.kuhn_poker import BET, CALL, CHECK, FOLD
from .information_sets import Floats, InformationSet, game_tree
from .tabulated import tabulate

#: Player 0's outcome between two equilibrium players, in chips.
KUHN_VALUE = -1 / 18
#: How often to bet or call with (J, Q, K): player 1, after check and after bet. It has one optimal strategy.
_SECOND = {CHECK: (1 / 3, 0.0, 1.0), BET: (0.0, 1 / 3, 1.0)}


def kuhn_poker(alpha: float = 0.0) -> Floats:
    """The equilibrium in which player 0 bets a jack with probability ``alpha``; all of them have the same value.

    Raises:
        ValueError: ``alpha`` is not from 0 to 1/3.
    """
    if not 0 <= alpha <= 1 / 3:
        raise ValueError(f"alpha={alpha}: must be from 0 to 1/3")
    first = {(): (alpha, 0.0, 3 * alpha), (CHECK, BET): (0.0, alpha + 1 / 3, 1.0)}

    def strategy(found: InformationSet) -> dict[str, float]:
        active = _SECOND[found.history[0]] if found.player else first[found.history]
        probability = min(1.0, active["JQK".index(found.private)])
        passive, bold = (FOLD, CALL) if BET in found.history else (CHECK, BET)
        return {passive: 1 - probability, bold: probability}

    return tabulate(game_tree("KuhnPoker"), strategy)
