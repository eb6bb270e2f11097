"""Where self-play rests under a KL loss, and the gradients of verl's KL estimators."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.composed import compose_run
from experiments.regularised_equilibrium import CLAMPED, FORWARD, REVERSE, action_values, at_rest, measures_at_rest
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.tabulated import reach, uniform


def test_what_actions_are_worth_in_kuhn_poker_by_hand() -> None:
    tree = game_tree("KuhnPoker")
    values = action_values(tree, uniform(tree))
    rows = {(state.player, state.private, state.history): row for row, state in enumerate(tree.information_sets)}
    # A king that faces a bet: folding costs the ante (half a reward), calling wins two chips (a whole one).
    king = rows[1, "K", ("[bet]",)]
    assert dict(zip(tree.information_sets[king].actions, values[king], strict=True)) == pytest.approx(
        {"[call]": 1.0, "[fold]": -0.5}
    )
    # A jack that begins: after a bet the other folds or calls, each half of the time: (0.5 - 1) / 2.
    jack = rows[0, "J", ()]
    assert values[jack][tree.information_sets[jack].actions.index("[bet]")] == pytest.approx(-0.25)


@pytest.mark.parametrize("coefficient", [0.3, 0.1, 0.03])
@pytest.mark.parametrize("kl_type", ["low_var_kl", "low_var_kl+"])
def test_at_rest_the_pull_and_the_gain_weigh_the_same(kl_type: str, coefficient: float) -> None:
    tree = game_tree("KuhnPoker")
    table = at_rest(tree, coefficient, kl_type)
    assert table is not None and table.sum(axis=1) == pytest.approx(np.ones(len(table)))
    gain = action_values(tree, table)
    held = np.ones(len(table), bool) if kl_type == "low_var_kl+" else 0.5 / table.min(axis=1).clip(1e-9) < CLAMPED
    # at rest the gradient by the probabilities is the same for both actions
    table = table[held].clip(1e-12)
    pull = -np.log(table / 0.5) if kl_type == "low_var_kl+" else 0.5 / table
    slope = gain[held] + coefficient * pull
    push = np.abs(slope[:, 0] - slope[:, 1]) * table.prod(axis=1)
    assert held.sum() >= 6 and push.max() < 3e-2 * coefficient


def test_an_action_that_verl_no_longer_holds_is_given_up() -> None:
    tree = game_tree("KuhnPoker")
    rows = {(state.player, state.private, state.history): row for row, state in enumerate(tree.information_sets)}
    king = rows[1, "K", ("[bet]",)]
    fold = tree.information_sets[king].actions.index("[fold]")
    table = at_rest(tree, 0.1, "low_var_kl")
    assert table is not None and table[king, fold] == 0.0  # 0.1 * 0.5 / 1.5 is less than 0.5 / 13.6
    table = at_rest(tree, 0.3, "low_var_kl")
    assert table is not None and table[king, fold] > 0.5 / CLAMPED


def test_where_verl_clamps_is_where_it_does() -> None:
    torch = pytest.importorskip("torch")
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    for ratio, held in ((0.999 * CLAMPED, True), (1.001 * CLAMPED, False)):
        log_p = torch.tensor([-np.log(ratio)], requires_grad=True)
        [slope] = torch.autograd.grad(core_algos.kl_penalty(log_p, torch.zeros(1), "low_var_kl").sum(), log_p)
        assert bool(slope.item() != 0) is held


def test_less_pull_is_nearer_to_an_equilibrium_and_the_other_gradient_is_further() -> None:
    tree = game_tree("KuhnPoker")
    found = {}
    for kl_type in ("low_var_kl", "low_var_kl+"):
        for coefficient in (0.3, 0.1, 0.05, 0.02):
            table = at_rest(tree, coefficient, kl_type)
            assert table is not None
            found[kl_type, coefficient] = nash_conv(tree, table)
    for kl_type in ("low_var_kl", "low_var_kl+"):
        values = [found[kl_type, coefficient] for coefficient in (0.3, 0.1, 0.05, 0.02)]
        assert values == sorted(values, reverse=True) and values[-1] < 0.03
    for coefficient in (0.3, 0.1, 0.05, 0.02):
        assert found["low_var_kl", coefficient] > found["low_var_kl+", coefficient]


PULLED = ["games=[KuhnPoker]", "actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.kl_loss_coef=0.3"]


def test_a_run_that_rests_somewhere_is_measured_there() -> None:
    run = compose_run(PULLED)
    assert measures_at_rest(run) == {"NashConv": pytest.approx(0.298, abs=1e-3)}
    run.algorithm.reward_scale = 3.0
    assert measures_at_rest(run) == {"NashConv": pytest.approx(0.134, abs=1e-3)}, "as with 0.1"


@pytest.mark.parametrize(
    "change",
    [
        "games=[LiarsDice-1]",
        "games=[KuhnPoker,TicTacToe]",
        "ref_update_freq=100",
        "algorithm.gamma=0.9",
        "fsp.enabled=true",
        "model=smollm2_135m",
        "actor_rollout_ref.actor.use_kl_loss=false",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.actor.kl_loss_type=kl",
    ],
)
def test_where_something_else_pulls_nothing_is_said(change: str) -> None:
    assert measures_at_rest(compose_run([*PULLED, change])) == {}


def test_what_has_no_rest_is_said_to_have_none() -> None:
    assert at_rest(game_tree("KuhnPoker"), 0.1, "k1") is None
    assert at_rest(game_tree("KuhnPoker"), 0.001, "k2") is None, "it goes round in circles"
    with pytest.raises(ValueError, match="above 0"):
        at_rest(game_tree("KuhnPoker"), 0.0, "k2")


@pytest.mark.parametrize("kl_type", ["low_var_kl", "low_var_kl+"])
def test_where_nothing_is_hidden_one_pass_balances_every_move(kl_type: str) -> None:
    tree = game_tree("TicTacToe")
    table = at_rest(tree, 0.3, kl_type)
    assert table is not None and table.sum(axis=1) == pytest.approx(np.ones(len(table)))
    reached = reach(tree, table)[tree.players >= 0] > 1e-6
    rows = tree.rows[tree.players >= 0][reached]
    gain, start = action_values(tree, table)[rows], uniform(tree)[rows]
    kept = (table[rows] > 0) & tree.legal[rows]
    ratio = np.where(kept, start, 1.0) / np.where(kept, table[rows], 1.0)
    slope = gain + 0.3 * (np.log(ratio) if kl_type == "low_var_kl+" else ratio)
    highest, lowest = (np.where(kept, slope, sign * np.inf) for sign in (-1, 1))
    assert len(rows) > 1000 and (highest.max(axis=1) - lowest.min(axis=1)).max() < 1e-6


def test_tictactoe_at_rest_hardly_loses_to_perfect_play() -> None:
    overrides = ["--config-dir", "config", "+experiment=tictactoe", "games=[TicTacToe]", "opponents=[]"]
    overrides += ["ref_update_freq=null"]
    assert not measures_at_rest(compose_run(overrides)), "it does not know of temperatures"
    found = measures_at_rest(compose_run([*overrides, "actor_rollout_ref.rollout.temperature=1.0"]))
    assert len(found) == 20 and all(found[f"TicTacToe, player {role}, perfect: win"] == 0 for role in (0, 1))
    assert found["TicTacToe, player 0, perfect: loss"] < 0.05 and found["TicTacToe, player 1, random: win"] > 0.75
    ends = [share for name, share in found.items() if name.endswith(("win", "draw", "loss", "invalid"))]
    assert sum(ends) == pytest.approx(4.0), "nothing is illegal at rest"


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
