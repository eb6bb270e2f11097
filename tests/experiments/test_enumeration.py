"""The exact variances are those of the games: by hand, by adding up all outcomes, and by games that are drawn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from experiments.enumeration import COLUMNS, SCHEMES, Lines, score_products, variances
from experiments.estimates import Estimator, Scores
from experiments.handicap import TREE, draw
from experiments.handicapped_kuhn import GAMES
from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform
from recipe.spiral.lab.models.forest import Scored
from recipe.spiral.match import Rules
from tests.lab.evaluation.exploitability.tables import expected_rewards

LINES = {c: Lines.of(game, TREE, Rules()) for c, game in GAMES.items()}
DECAY, MOVING = 0.8, 0.2 / 1.8


def tabular(table: Floats) -> Floats:
    """The scores of a table of logits, without illegal answers: s(a) = 1(a is the first) - p, in a weight for each
    information set. [answers, rows]"""
    scores = np.zeros((COLUMNS * len(table), len(table)))
    for row, (first, second) in enumerate(table):
        scores[COLUMNS * row, row], scores[COLUMNS * row + 1, row] = second, -first
    return scores


@pytest.fixture(scope="module")
def mixed() -> tuple[Floats, Floats]:
    """A policy that also answers illegally, and scores with weights that information sets share: the table, and the
    answers' scores [answers, 7]."""
    rng = np.random.default_rng(3)
    table = 0.8 * rng.dirichlet([2.0, 3.0, 0.7], size=len(TREE.information_sets)) + 0.2 / 3  # no rare answers
    scores = rng.normal(size=(*table.shape, 7))
    scores[:, -1] = -(table[:, 0, None] * scores[:, 0] + table[:, 1, None] * scores[:, 1]) / table[:, 2, None]
    return table[:, :2], scores.reshape(-1, 7)


def test_uniform_play_by_hand() -> None:
    """All scores have the square 1/4. Player 0 decides once or, after check and bet, twice; player 1 once.

    E[R^2 |S|^2] by line: check-check 1/4 (1/4) (2/4), check-bet-fold 1/8 (1/4) (3/4), check-bet-call 1/8 (1) (3/4),
    bet-fold 1/4 (1/4) (2/4), bet-call 1/4 (1) (2/4). The expected gradient at an information set is its probability,
    times 1/4, times what the first action gains over the second.
    """
    table = uniform(TREE)
    scores = tabular(table)
    exact = {c: variances(lines, table, scores @ scores.T, 0.95, 8) for c, lines in LINES.items()}
    second = 1 / 32 + 3 / 128 + 3 / 32 + 1 / 32 + 1 / 8
    signal = 3 * (3 / 96) ** 2 + (2.75 / 48**2) + 3 * (0.25 / 24) ** 2 + (2.75 / 24**2)
    assert exact[0.0].signal == pytest.approx(signal)
    assert exact[0.0].of["none"] == pytest.approx(second - signal)
    # E|S|^2 = 9/16 and E[R_0 |S_0|^2 - R_1 |S_1|^2] = 1/64
    assert exact[1.0].of["none"] == pytest.approx(second - signal + 2 / 64 + 9 / 16)
    assert exact[0.0].means == pytest.approx((1 / 16, -1 / 16))
    assert exact[1.0].means == pytest.approx((17 / 16, -17 / 16))
    assert exact[0.0].best == pytest.approx((0.0, -1 / 16))
    # with the means as constants, and 1/39 of the variance of the rewards, 17/32 - 1/256
    noise = (17 / 32 - 1 / 256) / 39 * 9 / 16
    rae = second - 2 / 16 / 64 + 1 / 256 * 9 / 16 - signal + noise
    assert exact[0.0].of["RAE"] == pytest.approx(rae)


def test_a_handicap_leaves_the_expected_gradient_and_what_knows_the_role(mixed: tuple[Floats, Floats]) -> None:
    """Also with illegal answers."""
    table, scores = mixed
    exact = {c: variances(lines, table, scores @ scores.T, DECAY, 4) for c, lines in LINES.items()}
    for c in (0.5, 1.0):
        assert exact[c].signal == pytest.approx(exact[0.0].signal)
        for scheme in ("RAE", "by observation", "GRPO per role", "best"):
            assert exact[c].of[scheme] == pytest.approx(exact[0.0].of[scheme])
        for role, sign in enumerate((1, -1)):
            assert exact[c].means[role] == pytest.approx(exact[0.0].means[role] + sign * c)
            assert exact[c].best[role] == pytest.approx(exact[0.0].best[role] + sign * c)
    # E|g|^2 is E|R S|^2 + 2 c ... + c^2 E|S|^2
    lengths = sum(np.square(LINES[0.0].answers[:, role] @ scores[role]).sum(axis=1) for role in _answers_by_role())
    curved = exact[1.0].of["none"] - 2 * exact[0.5].of["none"] + exact[0.0].of["none"]
    assert curved == pytest.approx(LINES[0.0].chances(table) @ lengths / 2)
    assert exact[0.0].means == pytest.approx(expected_rewards(TREE, table))


@pytest.mark.parametrize("c", GAMES)
def test_variances_are_those_of_all_outcomes(mixed: tuple[Floats, Floats], c: float) -> None:
    """The covariance's trace from every line's own vector; for groups, from every pair of lines after a deal."""
    table, scores = mixed
    lines = LINES[c]
    weights, exact = lines.chances(table), variances(lines, table, scores @ scores.T, DECAY, 2)
    decisions = np.repeat(lines.owners, COLUMNS)
    assert weights.sum() == pytest.approx(1)
    assert weights @ lines.answers @ scores == pytest.approx(np.zeros(7)), "the mean of the scores is 0"

    def estimates(baselines: Any) -> Floats:
        """Each line's g. [lines, 7]"""
        return np.asarray((lines.answers * (lines.rewards[:, decisions] - baselines)) @ scores)

    def trace(of: Floats) -> float:
        return float(weights @ np.square(of - weights @ of).sum(axis=1))

    assert exact.of["none"] == pytest.approx(trace(estimates(0.0)))
    assert exact.of["best"] == pytest.approx(trace(estimates(np.array(exact.best)[decisions])))
    for shift in itertools.product((-0.01, 0.01), repeat=2):
        assert trace(estimates((np.array(exact.best) + shift)[decisions])) > exact.of["best"]
    means = weights @ lines.rewards
    spread = weights @ np.square(lines.rewards - means)
    of_mean = MOVING * _variance(weights, lines.rewards.mean(axis=1))
    # a baseline with two equally likely values has the moving average's variance
    for scheme, middle, deviations in (
        ("RAE", means[decisions], np.sqrt(MOVING * spread)[decisions]),
        ("one mean", np.full(36, means.mean()), np.full(36, np.sqrt(of_mean))),
        ("by observation", *_by_observation(lines, weights)),
    ):
        signs = (np.full(36, 1.0), np.full(36, -1.0))
        varied = [estimates(middle + sign * deviations) for sign in signs]
        mean = weights @ estimates(0.0)
        second = np.mean([weights @ np.square(of).sum(axis=1) for of in varied])
        if scheme == "by observation":  # independent signs, which matter to no mean square but the pairs of one game
            second = _independently(lines, weights, scores, middle, deviations)
        assert exact.of[scheme] == pytest.approx(second - mean @ mean), scheme
    total = np.zeros(2)
    for deal in range(6):
        here = lines.deals == deal
        w, r, given = weights[here] * 6, lines.rewards[here], lines.answers[here]
        for i, j in itertools.product(range(len(w)), repeat=2):
            g = [(given[one] * (r[one] - r[other])[decisions]) @ scores for one, other in ((i, j), (j, i))]
            total += np.array([w[i] * w[j] * np.square(np.mean(g, axis=0)).sum(), w[i] * w[j]]) / 6
    gradient = weights @ estimates(0.0)
    assert total[1] == pytest.approx(1)
    assert exact.of["GRPO per role"] == pytest.approx(2 * (total[0] - gradient @ gradient))


def _answers_by_role() -> list[Any]:
    return [np.flatnonzero(np.repeat(TREE.owners == role, COLUMNS)) for role in (0, 1)]


def _variance(weights: Floats, values: Floats) -> float:
    return float(weights @ np.square(values - weights @ values))


def _by_observation(lines: Lines, weights: Floats) -> tuple[Floats, Floats]:
    """The mean rewards after each information set, and the moving averages' deviations. [answers], [answers]"""
    means, deviations = [], []
    for row, owner in enumerate(lines.owners):
        there = lines.visits[:, row] > 0
        share, rewards = weights[there] / weights[there].sum(), lines.rewards[there, owner]
        means.append(share @ rewards)
        deviations.append(np.sqrt(MOVING * _variance(share, rewards)))
    return np.repeat(means, COLUMNS), np.repeat(deviations, COLUMNS)


def _independently(lines: Lines, weights: Floats, scores: Floats, middle: Floats, deviations: Floats) -> float:
    """E|g|^2 with baselines that have these means and deviations, each independent of the others."""
    decisions = np.repeat(lines.owners, COLUMNS)
    fixed = (lines.answers * (lines.rewards[:, decisions] - middle)) @ scores
    noise = (lines.answers * deviations) ** 2 @ np.square(scores).sum(axis=1)
    return float(weights @ (np.square(fixed).sum(axis=1) + noise))


def test_variances_are_those_that_are_measured_in_drawn_games(mixed: tuple[Floats, Floats]) -> None:
    """By the estimator of the sampled experiment."""
    table, scores = mixed
    lines, groups, k = LINES[0.5], 60_000, 4
    drawn = draw(lines, table, np.random.default_rng(0), groups * k, k).reshape(groups, k)
    roles = np.stack([(lines.answers * (np.repeat(lines.owners, COLUMNS) == role)) @ scores for role in (0, 1)], axis=1)
    rewards, vectors = lines.rewards[drawn], roles[drawn]
    flat = vectors.reshape(groups, 2 * k, -1)
    sums = np.stack([(rewards[..., None] * vectors).sum((1, 2)), *vectors.sum(1).swapaxes(0, 1)], axis=1)
    measured = Estimator(Scores(rewards, flat @ flat.swapaxes(1, 2), sums), DECAY).all()
    exact = variances(lines, table, scores @ scores.T, DECAY, k).of
    for scheme, name in (("none", "none"), ("RAE", "rae"), ("GRPO per role", "group"), ("best", "best")):
        assert measured[name] == pytest.approx(exact[scheme], rel=0.02), scheme
    assert exact.keys() == set(SCHEMES)


def test_the_scores_are_the_gradients_of_the_answers(reader: Any) -> None:
    """Computed one by one; and with the one for illegal answers their mean is 0."""
    torch = pytest.importorskip("torch")
    groups = [[Scored([5, 6, 7], [8, 9]), Scored([5, 6, 7], [10])], [Scored([5, 11], [8]), Scored([5, 11], [4, 9])]]
    weights = list(reader.model.parameters())

    def log_prob(scored: Scored) -> Any:
        ids = torch.tensor([scored.prompt_ids + scored.response_ids])
        log_p = torch.log_softmax(reader.model(ids).logits[0, len(scored.prompt_ids) - 1 : -1], -1)
        return log_p.gather(1, torch.tensor(scored.response_ids)[:, None]).sum()

    vectors, table = [], []
    for answers in groups:
        legal = [log_prob(answer) for answer in answers]
        illegal = torch.log(1 - sum(value.exp() for value in legal))
        for value in (*legal, illegal):
            gradient = torch.autograd.grad(value, weights, retain_graph=True)
            vectors.append(torch.cat([part.flatten() for part in gradient]).double())
            table.append(value.exp().item())
    expected = torch.stack(vectors)
    found = score_products(reader.model, groups)
    assert found == pytest.approx((expected @ expected.T).numpy(), rel=1e-3, abs=1e-6)
    shares = np.array(table).reshape(2, COLUMNS)
    means = (shares[:, None, :] @ found.reshape(2, COLUMNS, 2 * COLUMNS))[:, 0]
    assert np.abs(means).max() < 1e-4 * np.abs(found).max()


def test_the_game_is_kuhn_poker_but_for_the_rewards() -> None:
    for c, kind in GAMES.items():
        for seed, actions in itertools.product(
            range(20), (["[check]", "[check]"], ["[bet]", "[fold]"], ["[bet]", "[call]"])
        ):
            plain, handicapped = KuhnPoker(seed), kind(seed)
            for action in actions:
                assert [handicapped.observation(player) for player in (0, 1)] == [
                    plain.observation(player) for player in (0, 1)
                ]
                plain.step(action)
                handicapped.step(action)
            assert handicapped.is_terminal
            assert np.subtract(handicapped.rewards(), plain.rewards()).tolist() == [c, -c]
    plain, shifted = LINES[0.0], LINES[1.0]
    assert len(plain.deals) == 6 * 9 and np.array_equal(plain.answers, shifted.answers)
    assert shifted.rewards - plain.rewards == pytest.approx(np.tile([1.0, -1.0], (54, 1))), "after illegal answers, too"
    assert sorted({tuple(row) for row in plain.rewards.tolist() if sum(row)}) == [(-1.5, 0.5), (0.5, -1.5)]
