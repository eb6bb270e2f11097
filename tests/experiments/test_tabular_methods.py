"""The methods in a table: values by hand and by the other implementation, and where each method ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments import regularised_equilibrium
from experiments.composed import compose_run
from experiments.tabular_methods import action_values, at_the_end, train
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform

TREE = game_tree("KuhnPoker")


def composed(*overrides: str) -> Any:
    return compose_run(
        ["--config-dir", "config", "+experiment=kuhn", "actor_rollout_ref.actor.kl_loss_coef=0.1", *overrides]
    )


def test_values_are_those_of_the_other_implementation_where_nothing_is_paid() -> None:
    table = np.random.default_rng(0).dirichlet([1, 1], len(TREE.information_sets))
    expected = regularised_equilibrium.action_values(TREE, table)
    np.testing.assert_allclose(action_values(TREE, table, np.zeros_like(table)), expected)


def test_what_a_later_turn_pays_the_other_player_gets() -> None:
    """Player 1 pays 0.25 for every fold after a bet: to fold is worth so much less to it, to bet is worth more to
    player 0, by the probability of a fold, and nothing else changes at those turns."""
    paid = np.zeros(TREE.legal.shape)
    rows = {state: row for row, state in enumerate(TREE.information_sets)}
    facing = [row for state, row in rows.items() if state.player == 1 and state.history == ("[bet]",)]
    first = [row for state, row in rows.items() if not state.history]
    for row in facing:
        paid[row, TREE.information_sets[row].actions.index("[fold]")] = 0.25
    moved = action_values(TREE, uniform(TREE), paid) - action_values(TREE, uniform(TREE), 0 * paid)
    np.testing.assert_allclose(moved[facing], -paid[facing])
    for row in first:
        by_action = dict(zip(TREE.information_sets[row].actions, moved[row], strict=True))
        assert by_action == {"[check]": pytest.approx(0), "[bet]": pytest.approx(0.125)}


def test_kl_to_the_start_ends_where_its_pull_balances() -> None:
    policy, reference = train(TREE, composed("trainer.total_training_steps=400"))
    assert (reference == uniform(TREE)).all()
    expected = regularised_equilibrium.at_rest(TREE, 0.1, "low_var_kl+")
    assert expected is not None
    np.testing.assert_allclose(policy, expected, atol=0.01)


@pytest.mark.parametrize(
    "overrides",
    [
        ["ref_update_freq=1", "ref_update_rate=0.05"],
        ["ref_update_freq=20"],
        ["ref_update_freq=20", "+quick.regularise=rewards"],
        ["ref_update_freq=1000", "+quick.kl_end=0.02"],
    ],
    ids=["mean", "copies", "R-NaD", "mirror descent"],
)
def test_a_reference_that_moves_or_a_pull_that_ends_leads_to_an_equilibrium(overrides: list[str]) -> None:
    policy, _ = train(TREE, composed("trainer.total_training_steps=800", *overrides))
    assert nash_conv(TREE, policy) < 0.025
    np.testing.assert_allclose(policy.sum(axis=1), 1)


def test_settings_without_a_counterpart_have_no_table() -> None:
    found = at_the_end(composed("trainer.total_training_steps=10", "ref_update_freq=1"))
    assert found.keys() == {"NashConv", "NashConv of the reference"} and len(set(found.values())) == 1, "a copy"
    for other in ("games=[TicTacToe]", "fsp.enabled=true", "actor_rollout_ref.actor.kl_loss_type=low_var_kl"):
        assert not at_the_end(composed("trainer.total_training_steps=10", other))


def test_without_a_pull_there_is_a_table_too() -> None:
    pull = "actor_rollout_ref.actor.kl_loss_coef=0"
    assert at_the_end(composed("trainer.total_training_steps=10", "ref_update_freq=1", pull))


@pytest.mark.parametrize(
    ("method", "pulled", "end"),
    [("loss", 0.2, 0.04), ("rewards", 0.1, 0.02)],
)
def test_twice_the_scale_takes_twice_the_pull_in_the_loss_and_the_same_in_the_rewards(
    method: str, pulled: float, end: float
) -> None:
    """As in the quick loop, which multiplies R - b, and in "rewards" the pull with it."""
    settings = ["trainer.total_training_steps=10", "ref_update_freq=5", f"+quick.regularise={method}"]
    plain, _ = train(TREE, composed(*settings, "+quick.kl_end=0.02"))
    twice = ["algorithm.reward_scale=2", f"actor_rollout_ref.actor.kl_loss_coef={pulled}", f"+quick.kl_end={end}"]
    np.testing.assert_allclose(train(TREE, composed(*settings, *twice))[0], plain)
