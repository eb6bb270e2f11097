"""Games as rows: from (seed, index) alone, mixed by weight, in both roles for validation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts.dataset import GameDataset
from recipe.spiral.rollouts.schedule import GameShare, parse_games, training_row, validation_rows

SHARES = [GameShare("TicTacToe", 3.0), GameShare("KuhnPoker", 1.0)]


def dataset(split: str = "train", **overrides: Any) -> GameDataset:
    config = {
        "games": ["TicTacToe", "KuhnPoker"],
        "run_seed": 5,
        "batch_unit": "games",
        "trainer_mode": "sync",
        "train_batch_size": 4,
        "games_per_start": 1,
        "opponents": [],
        "validation": {"games": None, "games_per_role": 3, "opponents": ["random"]},
        **overrides,
    }
    return GameDataset(split, None, OmegaConf.create(config), max_samples=-1)


def test_rows_come_from_seed_and_index_alone() -> None:
    """Whatever was asked for before, and in whatever order."""
    forward, backward = dataset(), dataset()
    rows = [forward[i] for i in range(50)]
    assert [backward[i] for i in reversed(range(50))][::-1] == rows
    assert [row["data_source"] for row in rows] != [dataset(run_seed=6)[i]["data_source"] for i in range(50)]


@given(st.integers(0, 10**9 - 1), st.integers(1, 512))
def test_a_row_knows_its_place_in_the_run(index: int, games_per_step: int) -> None:
    row = training_row(SHARES, 5, games_per_step, index)
    key = GameKey(**row["key"])
    assert (key.step - 1) * games_per_step + key.index == index
    assert 0 <= key.index < games_per_step
    assert (key.split, key.run_seed, key.retry) == ("train", 5, 0)


def test_weights_are_shares_of_the_games() -> None:
    """Three to one: of 4000 games 3000, give or take five standard deviations (27)."""
    drawn = Counter(training_row(SHARES, 5, 8, index)["data_source"] for index in range(4000))
    assert abs(drawn["TicTacToe"] - 3000) < 5 * 27.4
    assert drawn["TicTacToe"] + drawn["KuhnPoker"] == 4000


def test_games_of_a_group_start_from_the_same_state() -> None:
    """A row is a start: the same game with the same cards; every turn is sampled with its own seed."""
    rows = [training_row(SHARES, 5, 2, index, games_per_start=4) for index in range(6)]
    firsts = [GameKey(**row["key"]) for row in rows]
    assert [(key.step, key.index, key.group) for key in firsts] == [
        (1 + i // 2, i % 2 * 4, i % 2 * 4) for i in range(6)
    ]
    assert {row["__rollout_n__"] for row in rows} == {8}
    for first in firsts:
        games = [replace(first, index=first.index + number) for number in range(4)]
        assert len({key.game_seed() for key in games}) == 1 and len({key.seed("turn", 0, 0) for key in games}) == 4
    assert len({key.game_seed() for key in firsts}) == 6
    alone = GameKey(**training_row(SHARES, 5, 8, 5)["key"])
    assert alone.group is None and alone.game_seed() == alone.seed("game")


def test_a_game_may_have_a_style_of_its_own_and_it_draws_no_other_games() -> None:
    shares = parse_games([{"id": "TicTacToe", "style": "dialogue", "weight": 3}, "KuhnPoker"])
    rows = [training_row(shares, 5, 8, index) for index in range(20)]
    assert {(row["data_source"], row["prompt"]["style"]) for row in rows} == {
        ("TicTacToe", "dialogue"),
        ("KuhnPoker", ""),
    }
    without = [training_row(SHARES, 5, 8, index) for index in range(20)]
    assert [{**row, "prompt": {"template": "", "style": ""}} for row in rows] == without
    validation = {
        "games": [{"id": "Nim", "style": "dialogue"}],
        "games_per_role": 1,
        "opponents": ["random"],
    }
    assert [dataset("val", validation=validation)[index]["prompt"]["style"] for index in (0, 1)] == ["dialogue"] * 2


def test_validation_plays_every_game_in_both_roles() -> None:
    rows = validation_rows([("random", [GameShare("TicTacToe"), GameShare("KuhnPoker")])], 5, 3)
    assert Counter((row["data_source"], *row["seat"]["trainable"]) for row in rows) == {
        (game, role): 3 for game in ("TicTacToe", "KuhnPoker") for role in (0, 1)
    }
    assert {(row["seat"]["opponent"], row["__rollout_n__"]) for row in rows} == {("random", 1)}
    keys = [GameKey(**row["key"]) for row in rows]
    assert len(set(keys)) == len(rows)
    assert {key.split for key in keys} == {"val"}


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [3],
        ["TicTacToe", "TicTacToe-v0"],
        ["TicTacTo"],
        [{"weight": 2}],
        [{"id": "Nim", "wieght": 2}],
        [{"id": "Nim", "weight": 0}],
        [{"id": "Nim", "weight": float("nan")}],
        [{"id": "Nim", "weight": "twice"}],
        [{"id": "Nim", "style": "chat"}],
        [{"id": "Nim", "random_opening": True}],
        [{"id": "Nim", "random_opening": 2}],
    ],
    ids=str,
)
def test_bad_entries_are_named(entries: Any) -> None:
    with pytest.raises(ValueError, match=r"^validation\.games|unknown game"):
        parse_games(entries, "validation.games")
