"""Pairs: which turns are some, what becomes of the others, and DPO's loss, against the formula and through verl's."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import ppo_loss

from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.rae import Baselines
from recipe.spiral.rollouts.channel import Played
from recipe.spiral.spin.dpo import PairLoss, dpo_losses, log_ratios
from recipe.spiral.spin.pairs import PairObjective, Pairs, find_pairs
from recipe.spiral.spin.spin_settings import DPO, DpoSettings
from recipe.spiral.training.credit import Filters
from recipe.spiral.training.step import Step, account, deal
from tests.fake_queue import launches_of, rows_of
from tests.made import record, turn

# -- pairs -------------------------------------------------------------------------------------------------------------


def game(index: int, first: int, reward: float, group: int | None = 0, prompt: int = 1, **more: object) -> GameRecord:
    """A game whose first turn is the response ``first`` to a prompt; player 1 always sees and says the same."""
    said = Tokens([prompt], [first], [-0.5], (0, 0))
    answer = Tokens([9, first], [7], [-0.5], (0, 0))
    turns = [turn(0, 0, tokens=said), turn(1, 0, tokens=answer)]
    made = record(index, rewards=(reward, -reward), turns=turns, **more)  # type: ignore[arg-type]
    return replace(made, key=replace(made.key, group=group))


def test_the_best_response_is_chosen_and_the_worst_rejected() -> None:
    pairs = find_pairs(rows_of([game(0, 10, 0.0), game(1, 11, 1.0), game(2, 12, -1.0)]))
    assert (pairs.keys, pairs.games) == ([("u1_0_0", "u2_0_0")], ["TicTacToe"])
    assert pairs.alone == {"TicTacToe": 3}, "player 1's prompts, each of which has one response"


def test_ties_are_counted_and_give_no_pair() -> None:
    same = find_pairs(rows_of([game(0, 10, 1.0, trainable=(0,)), game(1, 11, 1.0, trainable=(0,))]))
    alike = find_pairs(rows_of([game(0, 10, 1.0, trainable=(0,)), game(1, 10, -1.0, trainable=(0,))]))
    for pairs in (same, alike):
        assert (pairs.keys, pairs.ties, pairs.alone) == ([], {"TicTacToe": 1}, {})


@pytest.mark.parametrize(
    "other",
    [
        game(1, 11, -1.0, group=1),
        game(1, 11, -1.0, prompt=2),
        replace(game(1, 11, -1.0, trainable=(0,)), players=("policy", "pool-3")),
    ],
    ids=["another start", "another prompt", "another opponent"],
)
def test_only_responses_to_one_prompt_are_compared(other: GameRecord) -> None:
    assert find_pairs(rows_of([game(0, 10, 1.0), other])).keys == []


def test_turns_that_filters_left_out_are_in_no_pair() -> None:
    games = [game(0, 10, 1.0), game(1, 11, -1.0)]
    games[1].turns[0].left_out = "truncated"
    assert find_pairs(rows_of(games)).keys == []


def accounted(*games: GameRecord) -> Step:
    played, objective = Played([*games], []), PairObjective(DpoSettings())
    return account(1, played, launches_of(games), rows_of(games).keys, Baselines(), Filters(), objective=objective)


def test_without_a_pair_one_row_stays_and_nothing_is_trained() -> None:
    """verl has no empty batches."""
    step = accounted(game(0, 10, 1.0), game(1, 11, 1.0))
    assert (step.keys, step.trains) == (["u0_0_0"], False)
    pairs = step.chosen
    assert isinstance(pairs, Pairs) and pairs.keys == []
    metrics = pairs.metrics("train")
    assert metrics["turns/left_out/unpaired"] == 1.0 and metrics["games/TicTacToe/p0/win"] == 1.0
    assert {name: value for name, value in metrics.items() if name.startswith("pairs/")} == {
        "pairs/count": 0.0,
        "pairs/ties": 1.0,
        "pairs/alone": 2.0,
        "pairs/TicTacToe/count": 0.0,
        "pairs/TicTacToe/ties": 1.0,
        "pairs/TicTacToe/alone": 2.0,
    }


@pytest.mark.parametrize(("mini_batches", "ranks"), [(1, 1), (2, 2), (3, 4), (5, 1)])
def test_both_rows_of_a_pair_are_side_by_side_on_one_rank(mini_batches: int, ranks: int) -> None:
    """Whatever their lengths; padding fills up with rows in twos."""
    games = [
        one for k in range(9) for one in (game(2 * k, 10, 1.0, group=2 * k), game(2 * k + 1, 11, -1.0, group=2 * k))
    ]
    rows = rows_of(replace(one, trainable=(0,)) for one in games)
    pairs = find_pairs(rows)
    multiple = 2 * mini_batches * ranks
    padding = -len(rows) % multiple
    keys = [*(key for pair in pairs.keys for key in pair), *(f"pad{i}" for i in range(padding))]
    lengths = [5 + 37 * i % 101 for i in range(len(rows))] + [3] * padding
    shares, _ = deal(lengths, len(rows), mini_batches, ranks, together=2)
    order = [row for share in shares for row in share]
    assert sorted(order) == [*range(len(keys))]
    side_by_side = {(keys[first], keys[second]) for first, second in zip(order[::2], order[1::2], strict=True)}
    assert set(pairs.keys) <= side_by_side
    # a rank's part of a mini-batch is even, so that no cut goes through a pair
    assert len(keys) // ranks // mini_batches % 2 == 0


def test_branches_are_counted_and_are_in_no_share_of_results() -> None:
    """They began from a state that another game reached."""
    alone = game(0, 10, 1.0)
    branches = [replace(game(0, 11 + i, -1.0), key=replace(alone.key, retry=1 + i)) for i in range(3)]
    metrics, whole = ({}, {})
    for into, games in ((metrics, [alone, *branches]), (whole, [alone])):
        into |= Pairs(records=games).metrics("train")
    assert metrics == whole | {"games/branches": 3.0} and whole["games/TicTacToe/p0/win"] == 1.0


# -- the formula -------------------------------------------------------------------------------------------------------


def by_hand(chosen: float, rejected: float, settings: DpoSettings) -> tuple[float, float]:
    """A pair's loss and its derivative by the chosen response's log-ratio, in plain numbers."""
    d, beta, e = chosen - rejected, settings.beta, settings.label_smoothing

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    if settings.loss_type == "ipo":
        return (d - 1 / (2 * beta)) ** 2, 2 * (d - 1 / (2 * beta))
    if settings.loss_type == "hinge":
        return max(0.0, 1 - beta * d), -beta if beta * d < 1 else 0.0
    loss = -(1 - e) * math.log(sigmoid(beta * d)) - e * math.log(sigmoid(-beta * d))
    return loss, -(1 - e) * beta * sigmoid(-beta * d) + e * beta * sigmoid(beta * d)


@pytest.mark.parametrize(
    "settings",
    [DpoSettings(0.1), DpoSettings(0.7, label_smoothing=0.2), DpoSettings(0.3, "ipo"), DpoSettings(0.5, "hinge")],
)
def test_loss_and_gradient_are_those_of_the_formula(settings: DpoSettings) -> None:
    generator = torch.Generator().manual_seed(0)
    chosen, rejected = (3 * torch.randn(50, generator=generator, dtype=torch.float64) for _ in range(2))
    chosen.requires_grad_()
    rejected.requires_grad_()
    losses = dpo_losses(chosen, rejected, settings)
    losses.sum().backward()
    expected = [by_hand(float(c), float(r), settings) for c, r in zip(chosen, rejected, strict=True)]
    assert losses.tolist() == pytest.approx([loss for loss, _ in expected])
    assert chosen.grad is not None and rejected.grad is not None
    assert chosen.grad.tolist() == pytest.approx([slope for _, slope in expected])
    assert rejected.grad.tolist() == pytest.approx([-slope for _, slope in expected])


def test_responses_are_added_up_or_averaged_and_what_is_masked_does_not_count() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, math.nan], [-3.0, 9.0, 9.0]])
    reference, mask = torch.tensor([[-2.0, -4.0, 0.0], [-1.0, 0.0, 0.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert log_ratios(log_probs, reference, mask, DpoSettings()).tolist() == [3.0, -2.0]
    assert log_ratios(log_probs, reference, mask, DpoSettings(log_prob="mean")).tolist() == [1.5, -2.0]


# -- rows --------------------------------------------------------------------------------------------------------------


def loss_of(marks: list[float], global_batch_size: int = 4) -> tuple[float, dict[str, float]]:
    """The loss of rows whose log-ratios are 1, 2, 3, ..., through verl's loss of a micro-batch."""
    rows = len(marks)

    def nested(values: list[list[float]]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in values], layout=torch.jagged)

    columns = {
        **{name: nested([[0.0]] * rows) for name in ("prompts", "responses", "old_log_probs", "ref_log_prob")},
        "response_mask": nested([[1.0]] * rows),
        "advantages": nested([[mark] for mark in marks]),
    }
    sizes = {"dp_size": 1, "global_batch_size": global_batch_size, "batch_num_tokens": None}
    data = tu.get_tensordict(columns, {**DpoSettings(1.0).batch_info, **sizes})
    config = SimpleNamespace(
        global_batch_info={},
        loss_scale_factor=None,
        loss_agg_mode="token-mean",
        policy_loss={"loss_mode": DPO},
        use_kl_loss=False,
    )
    log_probs = nested([[1.0 + row, 0.0] for row in range(rows)])  # that of the next token, at each place
    loss, metrics = PairLoss(partial(ppo_loss, config))(model_output={"log_probs": log_probs}, data=data)
    return float(loss), {name: float(metric.aggregate()) for name, metric in metrics.items()}


def test_two_rows_side_by_side_are_a_pair_in_either_order_and_padding_is_none() -> None:
    def minus_log_sigmoid(x: float) -> float:
        return math.log(1 + math.exp(-x))

    both = minus_log_sigmoid(-1) + minus_log_sigmoid(1)
    loss, metrics = loss_of([1, -1, -1, 1, 0, 0])
    assert loss == pytest.approx(both / 2)
    assert metrics == pytest.approx(
        {
            "actor/pg_loss": both / 2,
            "actor/dpo_accuracy": 0.5,
            "actor/dpo_margin": 0.0,
            "actor/dpo_chosen_reward": 2.5,
            "actor/dpo_rejected_reward": 2.5,
        }
    )
    # a part of a mini-batch of five pairs
    assert loss_of([1, -1, -1, 1, 0, 0], global_batch_size=10)[0] == pytest.approx(both / 5)
    assert loss_of([0, 0])[0] == 0.0
    with pytest.raises(RuntimeError, match="loss=dpo"):
        loss_of([1, 1])
