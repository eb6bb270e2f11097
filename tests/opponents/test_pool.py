"""The reference pool: who joins, who leaves, who is drawn, how ratings move, and that a resumed run goes on alike."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.opponents.pool import (
    ELO_K,
    LATELY,
    RECENT,
    START_RATING,
    WIN_RATE_DECAY,
    Keep,
    Member,
    Pool,
    Sample,
    given_name,
    snapshot_name,
)
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey

Result = Literal["win", "draw", "loss"]
RESULTS: dict[str, Result] = {"w": "win", "d": "draw", "l": "loss"}


def outcome(member: str, result: Result, index: int = 0, step: int = 1) -> GameRecord:
    """A game in which the policy, as the player of the index's parity, won, drew or lost."""
    learner, key = index % 2, GameKey("train", 7, step, index)
    mine = {"win": 1.0, "draw": 0.0, "loss": -1.0}[result]
    players, rewards = (("policy", member), (mine, -mine)) if learner == 0 else ((member, "policy"), (-mine, mine))
    return GameRecord(key, "TicTacToe", players, (learner,), rewards=rewards, opponent="pool")


def games(member: str, results: str, step: int = 1) -> list[GameRecord]:
    """One game a letter: w, d, l."""
    return [outcome(member, RESULTS[letter], i, step) for i, letter in enumerate(results)]


def filled(count: int, **settings: Any) -> Pool:
    """With members ``m0``, ``m1``, ... of steps 0, 5, ..."""
    pool = Pool(**settings)
    for i in range(count):
        pool.add(f"m{i}", 5 * i)
    return pool


# -- who joins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start_from", "interval", "due"),
    [(0, 5, [0, 5, 10, 15, 20]), (10, 5, [10, 15, 20]), (3, 7, [3, 10, 17]), (20, 1, [20]), (0, None, [])],
)
def test_snapshots_are_due_from_start_from_on(start_from: int, interval: int | None, due: list[int]) -> None:
    pool = Pool(start_from=start_from, update_interval=interval)
    assert [step for step in range(21) if pool.due(step)] == due


def test_what_has_been_added_is_not_due_again() -> None:
    """A resumed run may ask for its checkpoint's step, whether that was saved before or after the snapshot was added;
    a snapshot that has left, or was left out, does not come back."""
    pool = Pool(size=1)
    assert pool.due(5)
    pool.add(snapshot_name(5), 5)
    assert not pool.due(5)
    pool.add(snapshot_name(10), 10)
    assert pool.names == ["step_000010"]
    assert not pool.due(5)
    del pool.members["step_000010"]
    assert not pool.due(10) and pool.due(15)


def test_names() -> None:
    assert [snapshot_name(step) for step in (0, 40, 1234567)] == ["step_000000", "step_000040", "step_1234567"]
    assert given_name("my run", []) == "my_run"
    assert given_name("global_step_40", ["global_step_40"]) == "global_step_40-2"
    for taken in ("step_000040", "base", "self", "random", "unfinished-x"):
        assert given_name(taken, []) == f"given-{taken}"
    assert given_name("..", []) == "member"
    assert given_name("x", ["x", "x-2"]) == "x-3"


@given(
    st.lists(
        st.text("ab2./ -_é~", max_size=8) | st.sampled_from(["step_000000", "a", "a-2", "step_000001"]), max_size=12
    )
)
def test_given_names_are_unique_and_name_folders(folders: list[str]) -> None:
    names: list[str] = []
    for folder in folders:
        names.append(given_name(folder, names))
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name and name.isascii() for name in names)
    assert not {"base", "step_000001"} & set(names)


def test_a_name_is_used_once() -> None:
    pool = Pool(size=1)
    for step in (0, 5):
        pool.add(snapshot_name(step), step)
    for name in ("step_000000", "step_000005"):
        with pytest.raises(ValueError, match=f"has, or had, a member '{name}'"):
            pool.add(name, 9)
    assert pool.names == ["step_000005"]


# -- who leaves --------------------------------------------------------------------------------------------------------


def test_fifo_lets_the_oldest_leave() -> None:
    pool = Pool(size=3)
    left = [pool.add(f"m{i}", i) for i in range(6)]
    assert left == [[], [], [], ["m0"], ["m1"], ["m2"]]
    assert pool.names == ["m3", "m4", "m5"]


@pytest.mark.parametrize("size", [2, 3, 4, 10, 25])
def test_spread_keeps_the_whole_run(size: int) -> None:
    """First and newest always, and no gap twice as wide as gaps would be if all were alike."""
    pool = Pool(size=size, keep="spread")
    for step in range(0, 1500, 5):
        pool.add(snapshot_name(step), step)
        steps = [member.step for member in pool.members.values()]
        assert (steps[0], steps[-1]) == (0, step)
        assert len(steps) == min(size, step // 5 + 1)
        if size > 2 and step:
            gaps = [after - before for before, after in pairwise(steps)]
            assert max(gaps) <= 2 * step / (len(steps) - 1)


def test_best_lets_the_worst_rated_leave() -> None:
    pool = filled(3, size=3, keep="best")
    pool.record(games("m0", "lll") + games("m2", "www"))
    assert pool.add("m3", 15) == ["m2"]
    assert pool.names == ["m0", "m1", "m3"]


def test_the_newest_never_leaves_at_once() -> None:
    """Though the policy, whose rating it has, is the worst."""
    pool = filled(2, size=2, keep="best")
    pool.record(games("m0", "llll") + games("m1", "lll"))
    assert pool.add("m2", 10) == ["m1"]
    assert pool.add("m3", 15) == ["m2"]


def test_the_newest_is_who_joined_last() -> None:
    """Though by its step it lies between others."""
    pool = filled(3, size=3, keep="spread")
    assert pool.add("given", 6, path="/given") == ["m1"]
    assert pool.names == ["m0", "m2", "given"]


@pytest.mark.parametrize("keep", get_args(Keep))
def test_permanent_members_never_leave(keep: Any) -> None:
    pool = Pool(size=3, keep=keep)
    pool.add("given", 0, path="/given", permanent=True)
    pool.record(games("given", "wwww"))
    for step in range(0, 50, 5):
        pool.add(snapshot_name(step), step)
    assert pool.names[0] == "given"
    assert len(pool.names) == 3
    assert pool.names[-1] == "step_000045"


@pytest.mark.parametrize("keep", get_args(Keep))
def test_a_pool_of_one(keep: Any) -> None:
    pool = Pool(size=1, keep=keep)
    assert [pool.add(f"m{i}", i) for i in range(3)] == [[], ["m0"], ["m1"]]


def test_a_smaller_pool_shrinks_at_the_next_add() -> None:
    pool = Pool(size=2)
    pool.load_state_dict(filled(5, size=5).state_dict())
    assert pool.add("m5", 25) == ["m0", "m1", "m2", "m3"]


# -- whom to play ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", get_args(Sample))
def test_members_are_drawn_without_replacement(sample: Any) -> None:
    pool = filled(6, sample=sample)
    pool.record(games("m1", "w" * 50) + games("m2", "l" * 50))
    for step in range(20):
        chosen = pool.choose(step, 4)
        assert len(set(chosen)) == 4
        assert set(chosen) <= set(pool.names)
        assert pool.choose(step, 4) == chosen, "asking twice changes nothing"
    assert sorted(pool.choose(1, 99)) == pool.names
    assert pool.choose(1, 0) == Pool().choose(1, 3) == []


def drawn(pool: Pool, count: int = 4000) -> dict[str, float]:
    """How often each member is the first that is drawn."""
    first = Counter(pool.choose(step, 1)[0] for step in range(count))
    return {name: first[name] / count for name in pool.names}


def expect(pool: Pool, weights: list[float]) -> None:
    shares = drawn(pool)
    for name, weight in zip(pool.names, weights, strict=True):
        share = weight / sum(weights)
        assert shares[name] == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 4000) + 1e-9)


def test_how_members_are_drawn() -> None:
    results = games("m0", "w" * 9) + games("m1", "wl" * 4) + games("m2", "l" * 9) + games("m3", "d" * 9)
    for sample in get_args(Sample):
        pool = filled(5, sample=sample, seed=3)
        pool.record(results)
        rates = [member.win_rate for member in pool.members.values()]
        assert rates[0] > 0.9 and rates[2] < 0.1 and rates[3:] == [pytest.approx(0.5), 0.5]
        weights = {
            "uniform": [1.0] * 5,
            "recent": [RECENT**4, RECENT**3, RECENT**2, RECENT, 1.0],
            "hard": [(1 - rate) ** 2 for rate in rates],
            "even": [rate * (1 - rate) for rate in rates],
        }
        expect(pool, weights[sample])


def test_other_seeds_and_steps_draw_others() -> None:
    pools = [filled(20, seed=seed) for seed in (1, 2)]
    assert pools[0].choose(1, 5) != pools[1].choose(1, 5)
    assert pools[0].choose(1, 5) != pools[0].choose(2, 5)


# -- how games went ----------------------------------------------------------------------------------------------------


def test_results_are_counted() -> None:
    pool = filled(2)
    pool.record(games("m0", "wwdl", step=4))
    member = pool.members["m0"]
    assert (member.games, member.wins, member.draws, member.losses, member.played) == (4, 2, 1, 1, 4)
    assert pool.members["m1"].win_rate == 0.5


def test_win_rates_forget() -> None:
    pool = filled(1)
    pool.record(games("m0", "w"))
    assert pool.members["m0"].win_rate == (1 + 0.5) / 2, "one game, and one that counts as drawn"
    pool.record(games("m0", "l", step=2))
    assert pool.members["m0"].win_rate == pytest.approx((WIN_RATE_DECAY + 0.5) / (1 + WIN_RATE_DECAY + 1))
    pool.record(games("m0", "l" * 300, step=3))
    assert pool.members["m0"].win_rate < 0.02
    pool.record(games("m0", "w" * 300, step=4))
    assert 0.9 < pool.members["m0"].win_rate < 1


def test_elo_by_hand() -> None:
    pool = filled(2)
    pool.record(games("m0", "w"))
    assert pool.rating == START_RATING + ELO_K / 2
    assert pool.members["m0"].rating == START_RATING - ELO_K / 2
    before, expected = pool.rating, 1 / (1 + 10 ** (-ELO_K / 400))
    pool.record(games("m0", "d", step=2))
    assert pool.rating == pytest.approx(before + ELO_K * (0.5 - expected))
    pool.add("new", 10)
    assert pool.members["new"].rating == pool.rating, "a snapshot is the policy"
    pool.add("given", 10, path="/given")
    assert pool.members["given"].rating == START_RATING


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("wdl")), max_size=60))
def test_ratings_are_zero_sum_and_order_is_the_keys(played: list[tuple[int, str]]) -> None:
    outcomes = [outcome(f"m{who}", RESULTS[letter], i) for i, (who, letter) in enumerate(played)]
    pool, other = filled(4), filled(4)
    pool.record(outcomes)
    other.record(random.Random(1).sample(outcomes, len(outcomes)))
    assert pool.state_dict() == other.state_dict()
    total = pool.rating + sum(member.rating for member in pool.members.values())
    assert total == pytest.approx(5 * START_RATING)


def test_ratings_find_the_stronger() -> None:
    pool = filled(2)
    draw = random.Random(0)
    for step in range(60):
        pool.record(
            outcome(f"m{i % 2}", "win" if draw.random() < (0.9, 0.3)[i % 2] else "loss", i, step) for i in range(20)
        )
    assert pool.members["m0"].rating < pool.rating < pool.members["m1"].rating
    assert pool.rating - pool.members["m0"].rating == pytest.approx(400 * math.log10(9), abs=90)


def test_late_games_are_counted_and_strangers_refused() -> None:
    pool = Pool(size=1)
    for step in (0, 5):
        pool.add(snapshot_name(step), step)
    pool.record(games("step_000000", "wl"))
    assert pool.metrics(5)["fsp/late"] == 2
    assert pool.rating == START_RATING
    with pytest.raises(ValueError, match="train-7-1-0-0 was played against 'nobody', who is no member"):
        pool.record(games("nobody", "w"))


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_of_an_empty_pool() -> None:
    assert Pool().metrics(3) == {"fsp/size": 0, "fsp/rating": START_RATING, "fsp/late": 0}


def test_metrics() -> None:
    pool = filled(6)
    pool.record(games("m0", "w", step=30) + games("m5", "l", step=30) + games("m4", "w", step=30))
    metrics = pool.metrics(30)
    assert metrics["fsp/size"] == 6
    assert (metrics["fsp/age_oldest"], metrics["fsp/age_newest"], metrics["fsp/age_mean"]) == (30, 5, 17.5)
    assert metrics["fsp/rating"] == pool.rating
    assert (metrics["fsp/win/old"], metrics["fsp/win/recent"]) == (0.75, 0.5)
    assert "fsp/win/middle" not in metrics, "nobody of them played"
    assert "fsp/win/old" in pool.metrics(30 + LATELY - 1)
    assert not any(name.startswith("fsp/win") for name in pool.metrics(30 + LATELY))


def test_what_is_remembered_of_past_members_is_bounded() -> None:
    pool = Pool(size=3, update_interval=1)
    for step in range(3_000):
        assert pool.due(step)
        pool.add(snapshot_name(step), step)
    state = json.loads(json.dumps(pool.state_dict()))
    assert len(json.dumps(state)) < 1_000
    again = Pool(size=3, update_interval=1)
    again.load_state_dict(state)
    for kept in (pool, again):
        assert not any(kept.due(step) for step in (0, 1_500, 2_999)) and kept.due(3_000)
        with pytest.raises(ValueError, match="has, or had, a member 'step_000005'"):
            kept.add("step_000005", 5)
        kept.record(games("step_000005", "w"))
        assert kept.metrics(3_000)["fsp/late"] == 1


@pytest.mark.parametrize(("left", "forgotten"), [([], 10), (["step_000010", "given"], 5), (["given"], -1)])
def test_a_state_of_an_earlier_version_says_who_was_a_member(left: list[str], forgotten: int) -> None:
    """It names those that left, and the step of the newest that it does not name."""
    newest = 5 if forgotten == -1 else 10
    member = asdict(Member("step_000005", 5))
    pool = Pool()
    gone = dict.fromkeys(left, "made room after step 15")
    pool.load_state_dict({"members": [member], "rating": 1.0, "gone": gone, "forgotten": forgotten, "late": 0})
    assert [step for step in (0, 5, 10, 15) if not pool.due(step)] == list(range(0, newest + 1, 5))


@pytest.mark.parametrize(("count", "ages"), [(1, "r"), (2, "mr"), (3, "omr"), (4, "omrr"), (7, "oommrrr")])
def test_thirds_of_the_pool(count: int, ages: str) -> None:
    names = {"o": "old", "m": "middle", "r": "recent"}
    for place, age in enumerate(ages):
        pool = filled(count)
        pool.record(games(f"m{place}", "w"))
        assert f"fsp/win/{names[age]}" in pool.metrics(1)


def test_metric_names_stay_bounded() -> None:
    pool = Pool(size=4)
    for step in range(0, 200, 5):
        pool.add(snapshot_name(step), step)
        pool.record([outcome(name, "win", i, step + 1) for i, name in enumerate(pool.names)])
        assert len(pool.metrics(step + 1)) <= 6 + 3 + 3 * 4


# -- checkpoints -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.sampled_from(get_args(Keep)),
    st.sampled_from(get_args(Sample)),
    st.integers(0, 29),
    st.booleans(),
    st.integers(0, 1000),
)
def test_thirty_members_through_a_pool_of_four(keep: Any, sample: Any, cut: int, before_add: bool, seed: int) -> None:
    """Saved and loaded at any point, all that comes after is the same to the bit."""

    def new() -> Pool:
        return Pool(size=4, start_from=0, update_interval=1, keep=keep, sample=sample, seed=seed)

    def through_json(pool: Pool) -> Pool:
        loaded = new()
        loaded.add("forgotten", 0)
        loaded.load_state_dict(json.loads(json.dumps(pool.state_dict())))
        return loaded

    straight, resumed = new(), new()
    results = random.Random(seed)
    for step in range(30):
        if step == cut and before_add:
            resumed = through_json(resumed)
        assert straight.due(step) and resumed.due(step)
        assert straight.add(snapshot_name(step), step) == resumed.add(snapshot_name(step), step)
        if step == cut and not before_add:
            resumed = through_json(resumed)
            assert not resumed.due(step)
        chosen = straight.choose(step + 1, 2)
        assert chosen == resumed.choose(step + 1, 2)
        played = [
            outcome(chosen[i % len(chosen)], results.choice(["win", "draw", "loss"]), i, step + 1) for i in range(6)
        ]
        straight.record(played)
        resumed.record(played)
        assert straight.metrics(step + 1) == resumed.metrics(step + 1)
        assert straight.state_dict() == resumed.state_dict()
        assert len(straight.names) == min(step + 1, 4)


def test_loading_copies() -> None:
    pool = filled(1)
    state = pool.state_dict()
    other = Pool()
    other.load_state_dict(state)
    other.record(games("m0", "w"))
    other.add("m1", 5)
    assert pool.members == {"m0": Member("m0", 0)}
    assert state == pool.state_dict()


# -- settings ----------------------------------------------------------------------------------------------------------
