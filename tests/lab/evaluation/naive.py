"""Games played out in the plainest way, to check the evaluation against: no tables, no layers, ``Game.copy`` only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from recipe.spiral.games import Game
from recipe.spiral.games.kuhn_poker import CARDS, KuhnPoker

#: (player, observation, action) -> probability.
Behaviour = Mapping[tuple[int, str, str], float]


@dataclass(frozen=True)
class Leaf:
    """The end of one line of play: what was done, what was an illegal answer at last, and the outcome."""

    steps: tuple[tuple[int, str, str], ...]
    illegal: tuple[int, str] | None
    rewards: tuple[float, float]


def kuhn_deals() -> Iterator[KuhnPoker]:
    for cards in itertools.permutations(CARDS, 2):
        game = KuhnPoker(0)
        game.cards = cards
        yield game


@cache
def kuhn_leaves() -> tuple[Leaf, ...]:
    return tuple(leaf for game in kuhn_deals() for leaf in leaves(game, ()))


def leaves(game: Game, steps: tuple[tuple[int, str, str], ...]) -> Iterator[Leaf]:
    if game.is_terminal:
        yield Leaf(steps, None, game.rewards())
        return
    player = game.current_player
    seen = game.observation(player)
    yield Leaf(steps, (player, seen), (-1.5, 0.5) if player == 0 else (0.5, -1.5))
    for action in game.legal_actions():
        after = game.copy()
        after.step(action)
        yield from leaves(after, (*steps, (player, seen, action)))


def outcome(behaviour: Behaviour) -> tuple[float, float]:
    """Both players' mean outcome in Kuhn poker; what is lacking at an observation is illegal."""
    totals = [0.0, 0.0]
    lacking: dict[tuple[int, str], float] = {}
    for (player, seen, _), probability in behaviour.items():
        lacking[player, seen] = lacking.get((player, seen), 1.0) - probability
    for leaf in kuhn_leaves():
        probability = 1 / 6
        for step in leaf.steps:
            probability *= behaviour[step]
        if leaf.illegal:
            probability *= lacking[leaf.illegal]
        for player in (0, 1):
            totals[player] += probability * leaf.rewards[player]
    return totals[0], totals[1]


def best_outcome(behaviour: Behaviour, player: int) -> float:
    """The most that ``player`` gets with any of its pure strategies in Kuhn poker, all of them tried."""
    decisions: dict[str, list[str]] = {}
    for who, seen, action in behaviour:
        if who == player:
            decisions.setdefault(seen, []).append(action)
    best = -2.0
    for plan in itertools.product(*decisions.values()):
        pure = {
            (player, seen, action): float(action == chosen)
            for (seen, actions), chosen in zip(decisions.items(), plan, strict=True)
            for action in actions
        }
        best = max(best, outcome({**behaviour, **pure})[player])
    return best
