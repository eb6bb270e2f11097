"""The exact variance of the policy gradient in handicapped Kuhn poker: all deals and all answers, nothing sampled.

A game's estimate is ``g = sum over its decisions of (R - b) s``: R is the reward of the player who decides, b a
baseline, and the score s the gradient of the answer's log-probability. The variance is the trace of the covariance of
a batch's mean, times its games (as in ``estimates.py``). All illegal answers at an information set count as one answer,
whose probability is what the legal ones leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from experiments.handicapped_kuhn import NoHandicap
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, GameTree, Indices
from recipe.spiral.match import Rules

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from recipe.spiral.lab.models.forest import Scored

#: No baseline; RAE's moving averages; one for both roles; one for each observation; the role's mean over the other
#: games from the same start; the two constants with the least variance.
SCHEMES = ("none", "RAE", "one mean", "by observation", "GRPO per role", "best")
#: The answers of an information set: its two actions, and one for all illegal answers.
COLUMNS = 3


@dataclass(frozen=True)
class Lines:
    """Every way in which a game can go. Answer ``3 row + column`` is that column of the policy's table, or illegal.

    Attributes:
        deals: the number of each line's deal; a deal's lines follow one another, as many for each. [lines]
        answers: 1 for the answers that are given. [lines, answers]
        rewards: of both players. [lines, 2]
        owners: the player of each information set. [rows]
    """

    deals: Indices
    answers: Floats
    rewards: Floats
    owners: Indices

    @classmethod
    def of(cls, kind: type[NoHandicap], tree: GameTree, rules: Rules) -> Lines:
        """All lines of a game, by playing it.

        Args:
            kind: the game.
            tree: Kuhn poker's, whose information sets are the rows.
            rules: the rewards after an illegal answer.
        """
        rows = {seen.observation: row for row, seen in enumerate(tree.information_sets)}
        deals = {game.cards: game for game in map(kind, range(100))}
        found: list[tuple[int, list[int], tuple[float, float]]] = []

        def go_on(game: NoHandicap, deal: int, given: list[int]) -> None:
            if game.is_terminal:
                found.append((deal, given, game.rewards()))
                return
            player = game.current_player
            row = rows[game.observation(player)]
            for column, action in enumerate(tree.information_sets[row].actions):
                after = game.copy()
                after.step(action)
                go_on(after, deal, [*given, COLUMNS * row + column])
            offender, other = rules.illegal_rewards
            illegal = game.given((offender, other) if player == 0 else (other, offender))
            found.append((deal, [*given, COLUMNS * row + COLUMNS - 1], illegal))

        for deal, cards in enumerate(sorted(deals)):
            go_on(deals[cards], deal, [])
        numbers, given, rewards = zip(*found, strict=True)
        answers = np.zeros((len(found), COLUMNS * len(rows)))
        for line, places in enumerate(given):
            answers[line, places] = 1.0
        return cls(np.array(numbers), answers, np.array(rewards), tree.owners)

    @property
    def visits(self) -> Floats:
        """1 for the information sets where a line decides. [lines, rows]"""
        return self.answers.reshape(len(self.answers), -1, COLUMNS).sum(axis=2)

    def chances(self, table: Floats) -> Floats:
        """The lines' probabilities. [lines]

        Args:
            table: of the actions; what they leave of 1 is illegal. [rows, 2]
        """
        whole = np.append(table, np.maximum(1 - table.sum(axis=1, keepdims=True), 0), axis=1)
        weights: Floats = np.where(self.answers > 0, whole.flatten(), 1.0).prod(axis=1)
        return weights / len(np.unique(self.deals))

    def of_deal(self, deal: int) -> Lines:
        """The lines after one deal."""
        here = self.deals == deal
        return replace(self, deals=self.deals[here], answers=self.answers[here], rewards=self.rewards[here])


@dataclass(frozen=True)
class Variances:
    """The variances of one policy.

    Attributes:
        of: by scheme.
        signal: the squared length of the expected gradient.
        means: the expected rewards of players 0 and 1, where RAE's baselines settle.
        best: their baselines b* with the least variance.
    """

    of: dict[str, float]
    signal: float
    means: tuple[float, float]
    best: tuple[float, float]

    def ratios(self) -> dict[str, float]:
        """Each variance over the one without a baseline."""
        return {scheme: value / self.of["none"] for scheme, value in self.of.items()}


def variances(lines: Lines, table: Floats, products: Floats, decay: float, group: int) -> Variances:
    """The variance under every scheme.

    Args:
        lines: of the game.
        table: the policy's. [rows, 2]
        products: the inner products of the answers' scores. [answers, answers]
        decay: of the moving averages, which have settled. They move with each game, or with each visit.
        group: how many games start alike in "GRPO per role". Its mean leaves the game itself out, so that the gradient
            is whole.
    """
    weights, visits = lines.chances(table), lines.visits
    rewards = lines.rewards[:, lines.owners]  # of the player who decides. [lines, rows]
    # E|s|^2 of the decisions, 0 where they are not made; the scores of a game's decisions are uncorrelated
    sizes = (weights @ lines.answers * products.diagonal()).reshape(-1, COLUMNS).sum(axis=1)

    def scores(advantages: Floats) -> Floats:
        """g in terms of the answers' scores. [lines, rows] -> [lines, answers]"""
        return lines.answers * np.repeat(advantages, COLUMNS, axis=1)

    def square(advantages: Floats) -> float:
        """E|g|^2."""
        return _square(weights, scores(advantages), products)

    means = weights @ lines.rewards
    spread = weights @ (lines.rewards - means) ** 2
    reached = weights @ visits + 1e-300
    seen = weights @ (visits * rewards) / reached
    seen_spread = weights @ (visits * (rewards - seen) ** 2) / reached
    mean, of_mean = lines.rewards.mean(axis=1), float(weights @ lines.rewards.mean(axis=1))
    gradient = scores(rewards)
    signal = float(weights @ gradient @ products @ (weights @ gradient))
    # E[s R s] over E|s|^2, summed over a role's decisions
    moved = (weights[:, None] * lines.answers * (gradient @ products)).sum(axis=0).reshape(-1, COLUMNS).sum(axis=1)
    best = np.array([moved[lines.owners == role].sum() / sizes[lines.owners == role].sum() for role in (0, 1)])
    # the variance of a settled moving average, over that of what it averages
    moving = (1 - decay) / (1 + decay)
    of = {
        "none": square(rewards),
        "RAE": square(rewards - means[lines.owners]) + moving * sizes @ spread[lines.owners],
        "one mean": square(rewards - of_mean) + moving * sizes.sum() * (weights @ (mean - of_mean) ** 2),
        "by observation": square(rewards - seen) + moving * sizes @ seen_spread,
        "GRPO per role": _of_groups(lines, table, products, group) - (group - 1) * signal,
        "best": square(rewards - best[lines.owners]),
    }
    found = {scheme: float(value - signal) for scheme, value in of.items()}
    return Variances(found, signal, (float(means[0]), float(means[1])), (float(best[0]), float(best[1])))


def _square(weights: Floats, vectors: Floats, products: Floats) -> float:
    """The expected squared length of vectors in terms of the answers' scores. [lines], [lines, answers]"""
    return float(weights @ ((vectors @ products) * vectors).sum(axis=1))


def _of_groups(lines: Lines, table: Floats, products: Floats, k: int) -> float:
    """k E|mean of g over a group of k games|^2, where b is the role's mean reward in the other games.

    Of two games of a group, all but two terms of E<g, g'> vanish, because E[s] = 0: the product of the two expected
    gradients, and that of what is in either game's b of the other.
    """
    deals = np.unique(lines.deals)
    total = 0.0
    for here in map(lines.of_deal, deals):
        weights = here.chances(table) / here.chances(table).sum()
        of_role = [here.answers * np.repeat(here.owners == role, COLUMNS) for role in (0, 1)]
        off = here.rewards - weights @ here.rewards
        total += _square(weights, of_role[0] * off[:, [0]] + of_role[1] * off[:, [1]], products)
        for role in (0, 1):  # the variance of b, which is independent of the game
            total += weights @ off[:, role] ** 2 / (k - 1) * _square(weights, of_role[role], products)
        # E[R_q S_p]
        moved = [[weights * here.rewards[:, q] @ of_role[p] for q in (0, 1)] for p in (0, 1)]
        own = moved[0][0] + moved[1][1]
        crossed = sum(moved[p][q] @ products @ moved[q][p] for p in (0, 1) for q in (0, 1))
        total += (k - 1) * (own @ products @ own) + crossed / (k - 1)
    return float(total / len(deals))


def score_products(model: PreTrainedModel, groups: Sequence[Sequence[Scored]]) -> Floats:
    """The inner products of the scores of a model's answers. [answers, answers]

    Args:
        model: the policy.
        groups: by information set, its two actions as responses.
    """
    import torch

    from recipe.spiral.lab.models.forest import Tree, log_probs

    weights = list(model.parameters())
    scores = []
    for answers in groups:
        tree = Tree.of(answers)
        tokens = log_probs(model, [tree])
        sums = tokens.new_zeros(len(answers)).index_add(0, torch.tensor(tree.owners, device=tokens.device), tokens)
        gradients = [torch.autograd.grad(log_p, weights, retain_graph=True) for log_p in sums]
        legal = [torch.cat([part.flatten() for part in gradient]) for gradient in gradients]
        # the mean of all scores is 0, which gives that of an illegal answer
        chances = sums.detach().exp()
        illegal = 1.0 - float(chances.double().sum())
        mean = sum(chance * score for chance, score in zip(chances, legal, strict=True))
        scores += [*legal, -mean / illegal if illegal > 1e-9 else torch.zeros_like(legal[0])]
    flat = torch.stack(scores).double()
    return np.asarray((flat @ flat.T).cpu().numpy())
