"""The measured variances against closed forms and against batches that are really drawn, in a game of two actions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.estimates import SCHEMES, Array, Estimator, Scores, expected_ratio, ratios
from recipe.spiral.rae import RoleBaselines
from tests.made import record

#: Each player chooses once, action 1 with this probability; its score is the derivative in its one weight.
P = (0.25, 0.5)
#: What player 0 gets for (own action, other's action); uneven, so that roles differ.
PAYOFF = np.array([[0.9, -0.4], [0.7, 0.2]])
#: By how much the cards, which both players of all games of a group share, change player 0's outcome.
LUCK = 0.6


def outcome(actions: Array, luck: Array) -> Array:
    first = PAYOFF[actions[..., 0].astype(int), actions[..., 1].astype(int)] + LUCK * luck
    return np.stack([first, -first], axis=-1)


def score(actions: Array) -> Array:
    """[..., 2]: the two players' scores, each in a direction of its own."""
    return np.asarray(actions - np.array(P))


def made(actions: Array, luck: Array) -> Scores:
    """Scores of games with known actions [groups, k, 2] and luck [groups]."""
    groups, k = actions.shape[:2]
    rewards = outcome(actions, luck[:, None])
    vectors = score(actions)[..., None] * np.eye(2)  # [groups, k, 2, 2 weights]
    flat = vectors.reshape(groups, 2 * k, 2)
    sums = np.stack([(rewards[..., None] * vectors).sum((1, 2)), vectors[:, :, 0].sum(1), vectors[:, :, 1].sum(1)], 1)
    return Scores(rewards, flat @ flat.swapaxes(1, 2), sums)


def drawn(rng: np.random.Generator, groups: int, k: int) -> tuple[Array, Array]:
    return (rng.random((groups, k, 2)) < np.array(P)).astype(float), rng.choice([-1.0, 1.0], groups)


def closed_form() -> dict[str, float]:
    """Variances from the sum over all outcomes of one game."""
    cases = []
    for a0, a1, luck in itertools.product((0, 1), (0, 1), (-1.0, 1.0)):
        actions = np.array([float(a0), float(a1)])
        weight = (P[0] if a0 else 1 - P[0]) * (P[1] if a1 else 1 - P[1]) / 2
        cases.append((weight, outcome(actions, np.array(luck)), score(actions)))
    mean = sum(w * r for w, r, _ in cases)
    gradient = sum(w * r * s for w, r, s in cases)

    def trace(b: Array) -> float:
        return float(sum(w * np.square((r - b) * s).sum() for w, r, s in cases) - np.square(gradient).sum())

    best = sum(w * r * s**2 for w, r, s in cases) / sum(w * s**2 for w, _, s in cases)
    return {
        "none": trace(np.zeros(2)),
        "common": trace(np.full(2, np.mean(mean))),
        "role_mean": trace(mean),
        "best": trace(best),
        "signal": float(np.square(gradient).sum()),
    }


def test_measured_variances_are_the_closed_form() -> None:
    measured = Estimator(made(*drawn(np.random.default_rng(0), 20000, 2)))
    exact = closed_form()
    variances = measured.all()
    for scheme in ("none", "common", "role_mean", "best"):
        assert variances[scheme] == pytest.approx(exact[scheme], rel=0.02)
    assert measured.signal() == pytest.approx(exact["signal"], rel=0.1)
    assert variances["none"] > 1.2 * variances["role_mean"] > 1.2 * variances["best"] - 1e-9


def test_lengths_of_means_are_not_too_long_however_few_groups_there_are() -> None:
    rng = np.random.default_rng(8)
    found = [Estimator(made(*drawn(rng, 3, 2))).score_mean()[1] for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.0, abs=4 * np.std(found) / np.sqrt(2000))
    assert np.std(found) > 0.1


def batches(scheme: str, number: int, size: int) -> Array:
    """Estimates of so many batches that were really drawn, as training makes them: [number, 2 weights]."""
    rng = np.random.default_rng(1)
    k = size if scheme != "group" else 4
    actions, luck = drawn(rng, number * size // k, k)
    if scheme != "group":  # every game has cards of its own
        rewards = outcome(actions, rng.choice([-1.0, 1.0], actions.shape[:2]))
    else:
        rewards = outcome(actions, luck[:, None])
    if scheme == "rae":
        baselines = RoleBaselines(decay=0.8)
        advantages = np.empty_like(rewards)
        for place, batch in enumerate(rewards):
            advantages[place] = batch - [baselines.get("toy", role) for role in (0, 1)]
            baselines.update(record(i, "toy", tuple(r)) for i, r in enumerate(batch))
    else:  # the mean of the others
        advantages = k / (k - 1) * (rewards - rewards.mean(1, keepdims=True))
    return (advantages * score(actions)).reshape(number, size, 2).mean(1)


@pytest.mark.parametrize(("scheme", "number", "size"), [("rae", 3000, 4), ("batch", 40000, 4), ("group", 20000, 8)])
def test_measured_variances_are_those_of_batches(scheme: str, number: int, size: int) -> None:
    actions, luck = drawn(np.random.default_rng(2), 20000, 4)
    estimator = Estimator(made(actions, luck), decay=0.8, batch=size)
    estimates = batches(scheme, number, size)
    tolerance = 4 / np.sqrt(number)
    assert estimator.all()[scheme] == pytest.approx(size * estimates.var(axis=0).sum(), rel=tolerance)
    assert np.square(estimates.mean(0)).sum() == pytest.approx(estimator.signal(), rel=0.3)


def test_group_means_take_away_the_luck_of_the_cards() -> None:
    variances = Estimator(made(*drawn(np.random.default_rng(3), 5000, 8))).all()
    assert variances["group"] < 0.7 * variances["role_mean"]


def test_a_handicap_is_nothing_to_baselines_of_roles() -> None:
    scores = made(*drawn(np.random.default_rng(4), 500, 4))
    plain, handicapped = Estimator(scores).all(), Estimator(scores, handicap=1.5).all()
    for scheme in ("role_mean", "rae", "batch", "group", "best"):
        assert handicapped[scheme] == pytest.approx(plain[scheme])
    assert handicapped["none"] > 3 * plain["none"]
    assert handicapped["common"] == pytest.approx(handicapped["none"])  # the two roles' mean is 0 in a zero-sum game


def test_outcomes_alone_predict_the_ratio_where_sizes_of_scores_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    actions, luck = drawn(rng, 4000, 4)
    scores = made(actions, luck)
    shuffled = rng.permutation(scores.rewards.reshape(-1, 2)).reshape(scores.rewards.shape)
    zero = np.zeros_like(scores.sums)
    variances = Estimator(Scores(shuffled, scores.products, zero)).all()
    assert variances["rae"] / variances["none"] == pytest.approx(expected_ratio(shuffled, 0.95), rel=0.02)


def test_intervals_hold_the_value_and_are_the_same_again() -> None:
    estimator = Estimator(made(*drawn(np.random.default_rng(6), 100, 4)))
    found = ratios(estimator, 100, resamples=200, seed=1)
    assert found == ratios(estimator, 100, resamples=200, seed=1)
    assert set(found) == set(SCHEMES) and found["none"] == (1.0, 1.0, 1.0)
    for scheme in ("role_mean", "rae", "group"):
        value, low, high = found[scheme]
        assert low < value < high


def test_scores_of_a_policy_have_mean_zero_and_others_have_not() -> None:
    rng = np.random.default_rng(7)
    actions, luck = drawn(rng, 5000, 2)
    assert max(map(abs, Estimator(made(actions, luck)).score_mean())) < 0.002
    other = (rng.random(actions.shape) < 0.9).astype(float)  # moves of somebody else
    assert min(Estimator(made(other, luck)).score_mean()) > 0.2


def test_of_few_groups_too_intervals_are_numbers() -> None:
    """Of three groups every ninth resample would be of one group alone."""
    estimator = Estimator(made(*drawn(np.random.default_rng(6), 3, 2)))
    assert np.isfinite([*ratios(estimator, 3, resamples=200, seed=1).values()]).all()
