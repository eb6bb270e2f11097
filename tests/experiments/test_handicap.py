"""The experiment with a handicap: its loss is the quick loop's, its baselines are what their names say."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments import handicap, pages
from experiments.enumeration import COLUMNS, Lines
from experiments.handicap import ARMS, GROUPS, TREE, Baseline, Policy, check, draw, games_until, objective, train
from experiments.handicapped_kuhn import GAMES
from experiments.quick_sampler import Distributions
from experiments.quick_update import Learner, LossSettings, Weight
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform
from recipe.spiral.match import Rules
from recipe.spiral.rae import RoleBaselines
from tests.experiments.test_quick import OPTIM, kuhn_config, model_folder  # noqa: F401
from tests.made import record

torch = pytest.importorskip("torch")
LINES = {c: Lines.of(game, TREE, Rules()) for c, game in GAMES.items()}
DRAWN = draw(LINES[0.0], uniform(TREE), np.random.default_rng(0), 64, 8)


def settings(**changed: Any) -> dict[str, Any]:
    """The experiment's, as short as can be."""
    file = Path(handicap.__file__).with_name("config") / "handicap.yaml"
    whole: Any = OmegaConf.to_container(OmegaConf.load(file).copy())
    whole |= {"steps": 2, "every": 1, "variances_every": 2, "warm_starts": [0, 1], "seeds": [0, 1], "compile": False}
    return {**whole, **changed}


def test_the_loss_is_the_quick_loops(model_folder: Path) -> None:  # noqa: F811
    """Its gradient, of answers that were given in play: without illegal ones, which the quick loop tells apart."""
    config = kuhn_config(model_folder)
    policy = Policy(model_folder, config)
    rng = np.random.default_rng(1)
    legal = np.tile([1.0, 1.0, 0.0], len(TREE.information_sets))
    counts = rng.integers(1, 9, size=len(legal)) * legal
    advantages = rng.normal(size=len(legal)) * legal
    actor = SimpleNamespace(use_kl_loss=False, loss_scale_factor=16.0)
    loss = objective(policy.log_probs(), policy.log_probs().detach(), advantages, counts, actor)
    weights = list(policy.model.parameters())
    found = torch.autograd.grad(loss, weights)
    learner = Learner(Distributions(policy.model, trained=True), LossSettings(16.0, 0.0, None, "k3", 1.0), OPTIM, 10)
    answers = [(tuple(one.prompt_ids), tuple(one.response_ids)) for group in policy._groups for one in group]
    chosen = np.flatnonzero(legal)
    rows = {row: Weight(advantages[at], int(counts[at])) for row, at in zip(answers, chosen, strict=True)}
    expected = learner.objective(rows)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    for one, other in zip(found, torch.autograd.grad(expected, weights), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_kl_loss_has_the_gradient_of_kl_to_the_start() -> None:
    """With counts as expected, it is that of sum over a of p(a) log(p(a) / start(a)), whatever the rewards are."""
    logits = torch.tensor([[0.3, -0.2, 0.1], [1.0, 0.0, -1.0]], requires_grad=True)
    start = torch.log_softmax(torch.tensor([[0.0, 0.5, 0.2], [0.4, -0.3, 0.0]]), -1)
    log_p = torch.log_softmax(logits, -1)
    actor = SimpleNamespace(use_kl_loss=True, kl_loss_type="low_var_kl+", kl_loss_coef=0.2, loss_scale_factor=4.0)
    loss = objective(log_p.flatten(), start.flatten(), np.zeros(6), log_p.detach().exp().flatten().numpy(), actor)
    exact = 0.2 * (log_p.exp() * (log_p - start)).sum() / 4 / 2
    (found,), (expected,) = torch.autograd.grad(loss, logits, retain_graph=True), torch.autograd.grad(exact, logits)
    assert torch.allclose(found, expected, atol=1e-6)


def test_raes_baseline_is_the_recipes() -> None:
    baselines, ours = RoleBaselines(0.9), Baseline("RAE", LINES[0.5], 0.9, 8)
    for start in (0, 32):
        drawn = DRAWN[start : start + 32]
        rewards = LINES[0.5].rewards[drawn]
        expected = rewards - [baselines.get("KuhnPoker", role) for role in (0, 1)]
        assert ours.advantages(drawn) == pytest.approx(expected[:, TREE.owners])
        baselines.update(record(start + i, "KuhnPoker", tuple(of_game)) for i, of_game in enumerate(rewards))
        ours.update(drawn)
    assert np.abs(ours.values).max() > 0.3


def test_other_baselines() -> None:
    lines, by_name = LINES[1.0], {arm: Baseline(arm, LINES[1.0], 0.5, 8) for arm in ARMS}
    for baseline in by_name.values():
        baseline.update(DRAWN)
    assert not by_name["none"].values.any() and not by_name[GROUPS].values.any()
    assert not by_name["one mean"].values.any(), "what one player wins the other loses"
    row = int(np.flatnonzero(lines.visits[DRAWN].sum(axis=0) > 2)[0])
    seen = [lines.rewards[line, TREE.owners[row]] for line in DRAWN if lines.visits[line, row]]
    average = 0.0
    for reward in seen:
        average = 0.5 * average + 0.5 * reward
    assert by_name["by observation"].values[row] == pytest.approx(average)
    # the mean of the seven other games; and whatever the handicap is, the same is left
    rewards = lines.rewards[DRAWN][:8, 0]
    found = by_name[GROUPS].advantages(DRAWN)
    assert found[0, int(np.flatnonzero(TREE.owners == 0)[0])] == pytest.approx(rewards[0] - rewards[1:].mean())
    assert found == pytest.approx(Baseline(GROUPS, LINES[0.0], 0.5, 8).advantages(DRAWN))


def test_lines_are_drawn_with_their_chances() -> None:
    rng = np.random.default_rng(2)
    table = rng.dirichlet([2.0, 2.0, 1.0], size=len(TREE.information_sets))[:, :2]
    games = 200_000
    drawn = draw(LINES[0.0], table, rng, games, 1)
    shares = np.bincount(drawn, minlength=len(LINES[0.0].deals)) / games
    assert shares == pytest.approx(LINES[0.0].chances(table), abs=0.003)
    deals = LINES[0.0].deals
    first, second = (draw(LINES[0.0], of, np.random.default_rng(3), 64, 1) for of in (table, uniform(TREE)))
    assert np.array_equal(deals[first], deals[second]), "the same seed gives every arm the same deals"
    assert all(len(set(group)) == 1 for group in deals[DRAWN].reshape(8, 8).tolist())


def test_games_until_a_running_mean() -> None:
    """With three points in 30 games: 0.9; 0.6; 0.4; (0.3 + 0 + 0.3) / 3 = 0.2."""
    points = [{"games": 10 * i, "nash_conv": value} for i, value in enumerate((0.9, 0.3, 0.0, 0.3))]
    points = [{**point, handicap.NASH_CONV: point["nash_conv"]} for point in points]
    assert games_until(points, 0.3, 30) == 30
    assert games_until(points, 0.4, 30) == 20
    assert games_until(points, 0.1, 30) is None


def test_wrong_settings_are_named() -> None:
    check(settings(steps=400, every=10, variances_every=200))
    for changed, said in (
        ({"arms": [[0.3, "RAE"]]}, r"arms: \[0.3, RAE\]: must be one of 0.0, 0.5, 1.0 with one of none, RAE"),
        ({"arms": [[0.0, "RAE"]]}, r"comparisons: \[0.0, RAE, none\]: none is not in arms"),
        ({"seeds": [1, 1]}, r"seeds=\[1, 1\]: must be different"),
        ({"every": 3}, "steps=2: must be a multiple of every=3"),
        ({"group": 1}, "group=1: must be at least 2"),
    ):
        with pytest.raises(ValueError, match=said):
            check(settings(**changed))


def test_a_finished_run_is_not_made_again(
    model_folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the result has a page."""
    from recipe.spiral.lab.models import tiny

    monkeypatch.setattr(tiny, "ensure", lambda **named: model_folder)
    batch = ["data.train_batch_size=16"]
    config = settings(work=str(tmp_path), output=str(tmp_path / "docs"), group=4)
    config["overrides"] = [*config["overrides"], *batch]
    result = handicap.run(config, [])
    assert [(row["games_until"], row["reached"]) for row in result.rows[:1]] == [(32, False)]
    assert len(result.rows) == len(config["arms"]) * 4 and result.games == 32 * len(result.rows)
    ways = [(row["handicap"], row["arm"], row["warm_start"], row["seed"]) for row in result.rows]
    assert len(set(ways)) == len(ways)
    files = list(tmp_path.glob("c*.json"))
    monkeypatch.setattr(handicap, "train", lambda *_: pytest.fail("it is there already"))
    assert handicap.run(config, []) == result
    changed = json.loads(files[0].read_text())
    assert len(changed["points"]) == 3 and set(changed["variances"]) == {"0", "2"}
    files[0].unlink()
    with pytest.raises(pytest.fail.Exception):
        handicap.run(config, [])
    pages.publish(result, config, [])
    assert "| RAE |" in (tmp_path / "docs" / "handicap.md").read_text()


def test_without_a_handicap_arms_differ_by_their_baselines_alone(model_folder: Path) -> None:  # noqa: F811
    """With a group's mean, a run with a handicap is the same run."""
    composed = kuhn_config(model_folder)

    def trained(c: float, arm: str) -> dict[str, Any]:
        return train(Policy(model_folder, composed), c, arm, 0, settings(group=2), composed)

    plain, handicapped = (trained(c, GROUPS) for c in (0.0, 1.0))
    assert plain == handicapped
    assert trained(1.0, "none")["points"][-1] != plain["points"][-1]
    assert len(plain["variances"]["2"]) == len(GAMES) and COLUMNS == 3
