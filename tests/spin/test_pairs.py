"""Which turns are pairs, what becomes of the others, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.rae import Baselines
from recipe.spiral.rollouts.channel import Played
from recipe.spiral.spin.dpo_settings import DpoSettings
from recipe.spiral.spin.pairs import PairObjective, Pairs, find_pairs
from recipe.spiral.training.filters import Filters
from recipe.spiral.training.step import Step, account, deal
from tests.fake_queue import launches_of, rows_of
from tests.made import record, turn


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
    keys = [*reversed(rows.keys), *(f"pad{i}" for i in range(padding))]
    lengths = [5 + 37 * i % 101 for i in range(len(rows))] + [3] * padding
    units = [rows.places(pair).tolist() for pair in pairs.keys]
    order, _ = deal(rows.places(keys), lengths, mini_batches, ranks, units)
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
