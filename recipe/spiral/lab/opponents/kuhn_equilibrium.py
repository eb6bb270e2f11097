"""Kuhn poker in equilibrium: no opponent expects more against it than the game's value.

One round has the equilibria of the literature (Kuhn, 1950). The player who acts second has one optimal strategy. The
player who acts first has a family of them, with a parameter alpha in [0, 1/3].

Several rounds are solved from the last one backwards. Both players know who leads by how many chips, and later rounds
depend on nothing else. So each round is a game of its own, in which the value of winning c chips is the value of the
later rounds with c chips more; a linear program solves it. In each round a king never folds, a jack never calls, a king
is always bet after a check, and a queen is never bet, because nothing else gains more. What remains to be chosen is

    the starter:  how often to bet a jack, to call with a queen after check and bet, and to bet a king;
    the other:    how often to bet a jack after a check, and to call a bet with a queen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np

from ...games.kuhn_poker import BET, CALL, CARDS, CHECK, FOLD, KuhnPoker

#: Alpha may be any number from 0 to this.
LARGEST_ALPHA = 1 / 3


@dataclass(frozen=True)
class Stage:
    """How to play one round, as probabilities.

    Attributes:
        bet_jack: the starter bets a jack.
        call_queen: the starter calls with a queen after check and bet.
        bet_king: the starter bets a king.
        bluff: the other bets a jack after a check.
        catch: the other calls a bet with a queen.
    """

    bet_jack: float
    call_queen: float
    bet_king: float
    bluff: float
    catch: float

    def active(self, card: str, history: tuple[str, ...]) -> float:
        """The probability of betting, or after a bet of calling, with this card."""
        jack, queen, king = {
            (): (self.bet_jack, 0.0, self.bet_king),
            (CHECK,): (self.bluff, 0.0, 1.0),
            (BET,): (0.0, self.catch, 1.0),
            (CHECK, BET): (0.0, self.call_queen, 1.0),
        }[history]
        return {"J": jack, "Q": queen, "K": king}[card]


def one_round(alpha: float = LARGEST_ALPHA) -> Stage:
    """The equilibrium of one round: the starter bets a jack with probability alpha."""
    if not 0 <= alpha <= LARGEST_ALPHA:
        raise ValueError(f"alpha={alpha}: must be from 0 to 1/3")
    return Stage(alpha, alpha + 1 / 3, 3 * alpha, 1 / 3, 1 / 3)


def strategy(game: KuhnPoker, player: int, alpha: float = LARGEST_ALPHA) -> dict[str, float]:
    """The probabilities of the legal actions in equilibrium, from what ``player`` knows, who is to move.

    ``alpha`` chooses an equilibrium of one round; it has no effect with several rounds.
    """
    if game.rounds == 1:
        stage = one_round(alpha)
    else:
        stage = _stage(game.rounds - game.round, game.won if game.starter == 0 else -game.won)[1]
    probability = stage.active(game.cards[player], game.history)
    passive, active = (FOLD, CALL) if BET in game.history else (CHECK, BET)
    return {active: probability, passive: 1 - probability}


def _value(rounds: int, lead: int) -> float:
    """The expected outcome of the next round's starter, with so many rounds left and so many chips ahead."""
    if rounds == 0:
        return float((lead > 0) - (lead < 0))
    return _stage(rounds, lead)[0]


@cache
def _stage(rounds: int, lead: int) -> tuple[float, Stage]:
    """``_value``, and how to play the first of these rounds. In the round after it, the other player starts."""
    from scipy.optimize import linprog  # half a second, and one round needs none

    # The value of winning (negative: losing) so many chips, for the starter.
    worth = {chips: -_value(rounds - 1, -(lead + chips)) for chips in (-2, -1, 1, 2)}

    def payoff(*chosen: int) -> float:
        """The starter's, where these of the five probabilities are 1, and the others 0."""
        stage = Stage(*(float(place in chosen) for place in range(5)))
        return sum(_chips(stage, cards, worth) for cards in permutations(CARDS, 2)) / 6

    # The payoff is linear in each probability, so its coefficients are differences between certain choices.
    constant = payoff()
    single = np.array([payoff(i) - constant for i in range(5)])
    cross = np.array([[payoff(i, j) - constant - single[i] - single[j] for j in (3, 4)] for i in range(3)])
    # The starter's x and, for each choice of the other, what that can take from it: min(0, single + x . cross). The
    # prices of these limits are the other's probabilities.
    costs, limits = -np.append(single[:3], [1, 1]), np.hstack([-cross.T, np.eye(2)])
    best = linprog(costs, A_ub=limits, b_ub=single[3:], bounds=[(0, 1)] * 3 + [(None, 0)] * 2)
    return constant - best.fun, Stage(*np.clip([*best.x[:3], *-best.ineqlin.marginals], 0, 1).tolist())


def _chips(stage: Stage, cards: tuple[str, str], worth: dict[int, float]) -> float:
    """The value of a round with these cards for the starter, who has the first card."""
    higher = 1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1

    def mix(actor: int, history: tuple[str, ...], active: float, passive: float) -> float:
        probability = stage.active(cards[actor], history)
        return probability * active + (1 - probability) * passive

    bet = mix(1, (BET,), worth[2 * higher], worth[1])
    raised = mix(0, (CHECK, BET), worth[2 * higher], worth[-1])
    check = mix(1, (CHECK,), raised, worth[higher])
    return mix(0, (), bet, check)
