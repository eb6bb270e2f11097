"""The rest of self-play under a KL loss, and that verl's estimators pull as is said."""

from __future__ import annotations

import numpy as np
import pytest

from recipe.spiral.evaluation.best_response import nash_conv
from recipe.spiral.evaluation.information_sets import game_tree
from recipe.spiral.evaluation.tabulated import uniform
from recipe.spiral.experiments.regularised_equilibrium import FORWARD, REVERSE, at_rest, worth


def test_what_actions_are_worth_in_kuhn_poker_by_hand() -> None:
    tree = game_tree("KuhnPoker")
    found = worth(tree, uniform(tree))
    rows = {(one.player, one.private, one.history): row for row, one in enumerate(tree.information_sets)}
    # A king that faces a bet: folding costs the ante (half a reward), calling wins two chips (a whole one).
    king = rows[1, "K", ("[bet]",)]
    assert dict(zip(tree.information_sets[king].actions, found[king], strict=True)) == pytest.approx(
        {"[call]": 1.0, "[fold]": -0.5}
    )
    # A jack that begins: after a bet the other folds or calls, each half of the time: (0.5 - 1) / 2.
    jack = rows[0, "J", ()]
    assert found[jack][tree.information_sets[jack].actions.index("[bet]")] == pytest.approx(-0.25)


@pytest.mark.parametrize("kl_type", ["low_var_kl", "low_var_kl+"])
def test_at_rest_the_pull_and_the_gain_weigh_the_same(kl_type: str) -> None:
    tree = game_tree("KuhnPoker")
    table = at_rest(tree, 0.1, kl_type)
    assert table is not None and table.sum(axis=1) == pytest.approx(np.ones(len(table)))
    gain = worth(tree, table)
    # the gradient by the probabilities is the same for both actions
    pull = -np.log(table / 0.5) if kl_type == "low_var_kl+" else 0.5 / table
    slope = gain + 0.1 * pull
    assert slope[:, 0] == pytest.approx(slope[:, 1], abs=2e-3)


def test_less_pull_is_nearer_to_an_equilibrium_and_the_other_gradient_is_further() -> None:
    tree = game_tree("KuhnPoker")
    found = {
        (kl_type, coefficient): nash_conv(tree, table)
        for kl_type in ("low_var_kl", "low_var_kl+")
        for coefficient in (0.3, 0.1, 0.05)
        if (table := at_rest(tree, coefficient, kl_type)) is not None
    }
    for kl_type in ("low_var_kl", "low_var_kl+"):
        assert found[kl_type, 0.3] > found[kl_type, 0.1] > found[kl_type, 0.05]
    for coefficient in (0.3, 0.1, 0.05):
        assert found["low_var_kl", coefficient] > found["low_var_kl+", coefficient]


def test_what_has_no_rest_is_said_to_have_none() -> None:
    assert at_rest(game_tree("KuhnPoker"), 0.1, "k1") is None
    with pytest.raises(ValueError, match="above 0"):
        at_rest(game_tree("KuhnPoker"), 0.0, "k2")
    with pytest.raises(ValueError, match="TicTacToe"):
        at_rest(game_tree("TicTacToe"), 0.1, "k2")


@pytest.mark.parametrize("kl_type", [*REVERSE, *FORWARD])
def test_the_estimators_gradients_are_those_of_the_two_kls(kl_type: str) -> None:
    """In expectation over what the policy samples, as verl's loss has them."""
    torch = pytest.importorskip("torch")
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    logits = torch.tensor([0.3, -1.0, 0.9], dtype=torch.float64, requires_grad=True)
    start = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    policy = torch.softmax(logits, dim=0)
    estimates = core_algos.kl_penalty(torch.log(policy), torch.log(start), kl_type)
    [found] = torch.autograd.grad((policy.detach() * estimates).sum(), logits, retain_graph=True)
    kl = (policy * torch.log(policy / start)).sum() if kl_type in REVERSE else (start * torch.log(start / policy)).sum()
    [expected] = torch.autograd.grad(kl, logits)
    torch.testing.assert_close(found, expected)
