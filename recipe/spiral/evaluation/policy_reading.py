"""How a language model plays at every information set: its table, read off log-probabilities or off samples.

Where answers carry no reasoning, every way of writing a legal action has a probability that can be computed, and the
table is exact. Where they do, the same position is put to the player many times over, each answer is judged by the
match, and the table has intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from ..games import Game, make
from ..match import Rules, play
from ..players import Player
from ..prompts import extract_answer
from ..records import GameRecord
from ..seeds import GameKey
from .information_sets import Floats, GameTree, Indices, InformationSet
from .tabulated import checked

#: ``score([(observation, answers), ...])``: for each observation the log-probability of each answer as a whole
#: response, the token that ends it included. Prompts, tokens and temperature are the caller's.
Score = Callable[[Sequence[tuple[str, Sequence[str]]]], Sequence[Sequence[float]]]
#: The responses that say an action: different texts, which the match reads as that action.
Ways = Callable[[Game, str], Sequence[str]]


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read of a policy.

    Attributes:
        tree: the game.
        table: the probability of every legal action; what a row lacks to 1 is anything else that may be answered.
            [num_information_sets, most_actions]
        counts: where it was sampled: how many answers were each action, and in the last column how many were no legal
            one; else None. [num_information_sets, most_actions + 1]
    """

    tree: GameTree
    table: Floats
    counts: Indices | None = None

    @property
    def coverage(self) -> Floats:
        """The probability of the legal actions together; scored, of those ways to say them. [num_information_sets]"""
        covered: Floats = self.table.sum(axis=1)
        return covered

    @property
    def illegal(self) -> Floats:
        """The probability of anything else. [num_information_sets]"""
        rest: Floats = np.maximum(1 - self.coverage, 0.0)
        return rest

    def intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper limits of the table's entries, and in the last column of the illegal share (Wilson).

        Where the table is exact, both are its entries. [num_information_sets, most_actions + 1]
        """
        if self.counts is None:
            exact = np.column_stack([self.table, self.illegal])
            return exact, exact
        return wilson(self.counts, self.counts.sum(axis=1, keepdims=True), confidence)


def wilson(counts: Indices, totals: Indices, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's interval for a share: its lower and upper limit; (0, 1) where nothing was counted."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    trials = np.maximum(totals, 1)
    share = counts / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    nothing = totals == 0
    low = np.where(nothing | (counts == 0), 0.0, centre - half)
    high = np.where(nothing | (counts == totals), 1.0, centre + half)
    return low, high


def ways(game: Game, action: str) -> tuple[str, ...]:
    """An action in a box and nothing besides: as the game writes it, without its brackets, and its other spellings."""
    spellings = (action, action.strip("[]"), *game.spellings(action))
    texts = dict.fromkeys(f"\\boxed{{{spelling}}}" for spelling in spellings)
    return tuple(text for text in texts if game.parse(extract_answer(text) or "") == action)


def read_scores(tree: GameTree, score: Score, ways: Ways = ways) -> Reading:
    """Read a policy whose answers carry no reasoning: exactly, but for what it says in other ways than ``ways``.

    That rest counts as illegal. ``Reading.coverage`` shows what was found; where it is low at information sets that
    are reached, the policy answers otherwise, and should be sampled.

    Raises:
        ValueError: a score is no log-probability, or there are too many or too few.
    """
    game = make(tree.game_id, 0)
    texts = {action: ways(game, action) for found in tree.information_sets for action in found.actions}
    if silent := [action for action, said in texts.items() if not said]:
        raise ValueError(f"{tree.game_id}: no way is given to say {', '.join(silent)}")
    # What a player sees may be seen by the other too (in Nim): it is asked once.
    asked = {found.observation: found.actions for found in tree.information_sets}
    questions = [(seen, [text for action in actions for text in texts[action]]) for seen, actions in asked.items()]
    scores = score(questions)
    if len(scores) != len(questions):
        raise ValueError(f"score: {len(scores)} lists of log-probabilities for {len(questions)} observations")
    probabilities = {
        seen: _probabilities(log_p, [len(texts[action]) for action in asked[seen]])
        for (seen, _), log_p in zip(questions, scores, strict=True)
    }
    table = np.zeros(tree.legal.shape)
    for row, found in enumerate(tree.information_sets):
        table[row, : len(found.actions)] = probabilities[found.observation]
    return Reading(tree, checked(tree, table))


def _probabilities(log_p: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """The sums of the probabilities of so many answers each."""
    if len(log_p) != sum(sizes):
        raise ValueError(f"score: {len(log_p)} log-probabilities for {sum(sizes)} answers")
    if bad := [value for value in log_p if not value <= 1e-3]:
        raise ValueError(f"score: {bad[0]} is no log-probability")
    values = iter(np.exp(log_p))
    return [float(sum(next(values) for _ in range(size))) for size in sizes]


async def read_player(
    tree: GameTree,
    player: Player,
    samples: int,
    seed: int = 0,
    rules: Rules | None = None,
    at_once: int = 1024,
) -> Reading:
    """Ask a player ``samples`` times at every information set.

    Each time is a match of one turn with its own key, so an answer is read and judged as in any other match.

    Args:
        samples: answers for each information set.
        seed: decides the keys, and with them what a player samples.
        rules: how the match judges answers that the length limit cut off.
        at_once: the most matches under way at a time.

    Raises:
        ValueError: no samples.
        PlayerFailure: the player had no answer.
    """
    if samples < 1:
        raise ValueError(f"samples={samples}: must be at least 1")
    one_turn = replace(rules or Rules(), turn_cap=1)
    asked = [found for found in tree.information_sets for _ in range(samples)]
    records: list[GameRecord] = []
    for start in range(0, len(asked), at_once):
        matches = [
            _ask(found, player, GameKey("reading", seed, 0, index), one_turn)
            for index, found in enumerate(asked[start : start + at_once], start)
        ]
        records += await asyncio.gather(*matches)
    return read_records(tree, records)


async def _ask(found: InformationSet, player: Player, key: GameKey, rules: Rules) -> GameRecord:
    return await play(key, found.game_id, found.game(), (player, player), (), rules)


def read_records(tree: GameTree, records: Iterable[GameRecord], player: str | None = None) -> Reading:
    """Read a policy off turns that were played in whole games.

    Args:
        records: games of the tree's.
        player: the name of the policy among the games' players; None: every turn counts.

    Raises:
        ValueError: a turn in which the player saw what is not in the tree; or no turn at some information set.
    """
    counts = np.zeros((tree.legal.shape[0], tree.legal.shape[1] + 1), dtype=np.int64)
    for turn in (turn for record in records for turn in record.turns if player in (None, record.players[turn.player])):
        row = tree.row_of.get((turn.player, turn.observation))
        if row is None:
            raise ValueError(f"this is not {tree.game_id}, or not as it is now: {turn.observation!r}")
        legal = turn.verdict == "legal" and turn.action is not None
        counts[row, tree.information_sets[row].actions.index(turn.action) if legal and turn.action else -1] += 1
    totals = counts.sum(axis=1, keepdims=True)
    if missing := int((totals == 0).sum()):
        raise ValueError(
            f"{tree.game_id}: no turn at {missing} of {len(totals)} information sets; ask the player at each of them "
            "(read_player)"
        )
    table = counts[:, :-1] / totals
    return Reading(tree, checked(tree, table), counts)
