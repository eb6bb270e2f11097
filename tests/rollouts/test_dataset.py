"""Games as rows: from (seed, index) alone, mixed by weight; in validation each opponent in both roles, in its games."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.players.seats import Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts.dataset import GameDataset
from recipe.spiral.rollouts.schedule import GameShare, matches, parse_games, training_row, validation_rows

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
    validation = {"games": [{"id": "Nim", "style": "dialogue"}], "games_per_role": 1, "opponents": ["random"]}
    assert [dataset("val", validation=validation)[index]["prompt"]["style"] for index in (0, 1)] == ["dialogue"] * 2


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


# -- validation --------------------------------------------------------------------------------------------------------

GAMES = [GameShare("Nim"), GameShare("LiarsDice"), GameShare("ConnectFour")]


def games_of(names: Any, opponents: Any = ()) -> list[tuple[str, list[str]]]:
    return [(name, [share.id for share in shares]) for name, shares in matches(names, opponents, GAMES)]


def test_an_opponent_is_left_out_where_it_cannot_play() -> None:
    assert games_of(["perfect", "random", "alphabeta"]) == [
        ("perfect", ["Nim"]),
        ("random", ["Nim", "LiarsDice", "ConnectFour"]),
        ("alphabeta", ["ConnectFour"]),
    ]


def test_an_entry_of_opponents_brings_its_kind_its_settings_and_its_games() -> None:
    entries = [
        {"kind": "alphabeta", "name": "deep", "depth": 3},
        {"kind": "random", "name": "dice", "games": ["LiarsDice"]},
    ]
    assert games_of(["deep", "dice"], entries) == [("deep", ["ConnectFour"]), ("dice", ["LiarsDice"])]


@pytest.mark.parametrize(
    ("names", "opponents"),
    [
        ([], []),
        (["random", "perfect", "random"], []),
        (["gpt"], []),
        (["old"], [{"kind": "model", "name": "old", "path": "m"}]),
        (["random"], [{"kind": "random", "games": ["KuhnPoker"]}]),
        (["deep"], [{"kind": "alphabeta", "name": "deep", "depth": 99}]),
    ],
)
def test_an_opponent_that_cannot_validate_is_named(names: Any, opponents: Any) -> None:
    with pytest.raises(ValueError, match=r"^validation\.opponents"):
        games_of(names, opponents)


def test_every_opponent_plays_its_games_in_both_roles() -> None:
    rows = validation_rows(matches(["random", "perfect"], [], GAMES), 5, 2)
    seats = [(row["seat"]["opponent"], row["data_source"], Seat.from_row(row).trainable) for row in rows]
    wanted = [("random", game) for game in ("Nim", "LiarsDice", "ConnectFour")] + [("perfect", "Nim")]
    assert seats == [(*one, (role,)) for one in wanted for role in (0, 1) for _ in range(2)]
    assert [GameKey(**row["key"]).index for row in rows] == list(range(16))
