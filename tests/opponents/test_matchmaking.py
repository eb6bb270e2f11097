"""Who plays whom: exact counts, both roles, every member as often, and the same after a resume."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.opponents.matchmaking import Matchmaker
from recipe.spiral.players.seats import Seat
from recipe.spiral.players.seeds import GameKey

MEMBERS = ("step_000005", "step_000010", "step_000015")
GAMES = ("TicTacToe", "KuhnPoker")
Games = list[tuple[GameKey, str]]


def games_of(step: int, count: int, ids: Sequence[str] = GAMES, seed: int = 7, per_group: int = 1) -> Games:
    """A step's games, the ids in turn."""
    games = []
    for i in range(count):
        first = i - i % per_group
        key = GameKey("train", seed, step, i, group=first if per_group > 1 else None)
        games.append((key, ids[first // per_group % len(ids)]))
    return games


def kind(seat: Seat) -> str:
    return seat.opponent.kind if seat.opponent.kind in ("self", "pool") else "fixed"


def kinds(seats: Sequence[Seat]) -> dict[str, int]:
    return dict(Counter(map(kind, seats)))


def test_without_shares_all_is_self_play() -> None:
    assert Matchmaker().assign(games_of(1, 5), MEMBERS) == [Seat()] * 5


def test_a_step_has_exactly_its_share_of_each_kind() -> None:
    matchmaker = Matchmaker(0.5, {"random": 0.125, "api:gpt": 0.125})
    for step in range(1, 4):
        assigned = matchmaker.assign(games_of(step, 64), MEMBERS)
        assert kinds(assigned) == {"self": 16, "pool": 32, "fixed": 16}
        fixed = Counter(seat.opponent.name for seat in assigned if kind(seat) == "fixed")
        assert fixed == {"random": 8, "api:gpt": 8}
        assert all(len(seat.trainable) == 1 for seat in assigned if kind(seat) != "self")


def test_what_does_not_come_out_even_is_carried_over() -> None:
    """3 of 10 games in each of 10 steps of 5 games: 15 in all, 1 or 2 a step."""
    matchmaker = Matchmaker(0.3)
    counts = [kinds(matchmaker.assign(games_of(step, 5, GAMES[:1]), MEMBERS))["pool"] for step in range(1, 11)]
    assert sum(counts) == 15
    assert set(counts) == {1, 2}


def test_a_share_below_one_game_a_step_comes_now_and_then() -> None:
    matchmaker = Matchmaker(shares={"random": 0.05})
    steps = [kinds(matchmaker.assign(games_of(step, 4), ())).get("fixed", 0) for step in range(1, 21)]
    assert sum(steps) == 4
    assert max(steps) == 1


def test_all_games_may_be_against_the_pool() -> None:
    matchmaker = Matchmaker(0.7, {"a": 0.1, "b": 0.2})  # whose sum is not quite 1 in floating point
    for step in range(1, 30):
        assert "self" not in kinds(matchmaker.assign(games_of(step, 7), MEMBERS))


def test_games_of_an_empty_pool_are_self_play_and_nothing_is_owed() -> None:
    matchmaker = Matchmaker(0.5, {"random": 0.25})
    for step in range(1, 10):
        assert kinds(matchmaker.assign(games_of(step, 8), ())) == {"self": 6, "fixed": 2}
    assert kinds(matchmaker.assign(games_of(10, 8), MEMBERS)) == {"self": 2, "pool": 4, "fixed": 2}


def test_a_pool_that_has_become_empty_leaves_no_debt() -> None:
    matchmaker = Matchmaker(0.5)
    matchmaker.assign(games_of(1, 3), MEMBERS)
    for step in range(2, 5):
        assert kinds(matchmaker.assign(games_of(step, 4), ())) == {"self": 4}
    assert sum(sum(owed.values()) for owed in matchmaker.state_dict()["owed"].values()) == pytest.approx(0)


@given(
    st.lists(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=24), min_size=1, max_size=12),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(1, 3),
)
def test_no_share_is_ever_far_off(steps: list[list[str]], pool: int, fixed: int, members: int) -> None:
    """Over the run so far, whatever the mix of ids was: each kind is within a game or so of its share, and within three
    for each game id. Both roles, and members within a step, differ by 1 at most."""
    ratio, share = pool / 12, fixed / 12
    matchmaker = Matchmaker(ratio, {"random": share})
    want = {"pool": ratio, "fixed": share, "self": 1 - ratio - share}
    played: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    roles: Counter[tuple[str, str, int]] = Counter()
    for step, ids in enumerate(steps, start=1):
        games = [(GameKey("train", 7, step, i), game) for i, game in enumerate(ids)]
        names = MEMBERS[:members]
        assigned = matchmaker.assign(games, names)
        used = Counter(seat.opponent.name for seat in assigned if kind(seat) == "pool")
        assert max(used[name] for name in names) - min(used[name] for name in names) <= 1
        for (_, game), seat in zip(games, assigned, strict=True):
            played[game, kind(seat)] += 1
            totals[game] += 1
            if kind(seat) != "self":
                roles[game, seat.opponent.name, seat.trainable[0]] += 1
        for name, part in want.items():
            in_all = sum(played[game, name] for game in totals)
            assert abs(in_all - part * totals.total()) < 1.34  # (K - 1)^2 / K with K = 3 kinds
            for game, count in totals.items():
                assert abs(played[game, name] - part * count) < 3
    for game, opponent, _ in list(roles):
        assert abs(roles[game, opponent, 0] - roles[game, opponent, 1]) <= 1


def test_of_two_kinds_each_is_within_one_game() -> None:
    matchmaker = Matchmaker(0.37)
    pool, games = 0, 0
    for step in range(1, 200):
        count = step * 7 % 11 + 1
        pool += kinds(matchmaker.assign(games_of(step, count), MEMBERS)).get("pool", 0)
        games += count
        assert abs(pool - 0.37 * games) < 1


def test_games_ids_have_their_share_in_a_step() -> None:
    """A rare game is not left to self-play."""
    matchmaker = Matchmaker(0.5)
    ids = [*["TicTacToe"] * 24, *["KuhnPoker"] * 8]
    games = [(GameKey("train", 7, 1, i), game) for i, game in enumerate(ids)]
    assigned = matchmaker.assign(games, MEMBERS)
    pool = Counter(game for (_, game), seat in zip(games, assigned, strict=True) if kind(seat) == "pool")
    assert pool == {"TicTacToe": 12, "KuhnPoker": 4}


def test_which_games_they_are_says_nothing_about_them() -> None:
    """Over many steps every place of a step is a pool game about as often; so is it the one role and the other."""
    matchmaker = Matchmaker(0.5)
    pool: Counter[int] = Counter()
    first: Counter[int] = Counter()
    for step in range(1, 401):
        for i, seat in enumerate(matchmaker.assign(games_of(step, 8), MEMBERS)):
            pool[i] += kind(seat) == "pool"
            first[i] += seat.trainable == (0,)
    assert all(150 < pool[i] < 250 for i in range(8)), pool  # 200 +- 10
    assert all(60 < first[i] < 140 for i in range(8)), first  # 100 +- 9


def test_roles_are_even_over_all_members_of_a_game() -> None:
    """A new member's first game is not always played as player 0."""
    matchmaker = Matchmaker(1.0)
    trainable: Counter[int] = Counter()
    for step in range(1, 41):
        (seat,) = matchmaker.assign(games_of(step, 1, ["Nim"]), [f"step_{step:06d}"])
        trainable[seat.trainable[0]] += 1
    assert trainable == {0: 20, 1: 20}


@pytest.mark.parametrize("per_group", [2, 4])
def test_a_group_has_one_opponent_and_one_learner(per_group: int) -> None:
    matchmaker = Matchmaker(0.5, {"random": 0.25})
    for step in range(1, 5):
        games = games_of(step, 32, per_group=per_group)
        assigned = matchmaker.assign(games, MEMBERS)
        groups: dict[int | None, set[Seat]] = {}
        for (key, _), seat in zip(games, assigned, strict=True):
            groups.setdefault(key.group, set()).add(seat)
        assert {len(seats) for seats in groups.values()} == {1}
        assert kinds(assigned) == {"self": 8, "pool": 16, "fixed": 8}


def test_rounds_of_one_step_share_the_members() -> None:
    """A batch of turns is launched in rounds, here of one game each."""
    matchmaker = Matchmaker(1.0)
    games = games_of(1, 6)
    used = Counter(matchmaker.assign([game], MEMBERS)[0].opponent.name for game in games)
    assert set(used.values()) == {2}
    (seat,) = matchmaker.assign(games_of(2, 1), MEMBERS)
    assert kind(seat) == "pool", "another step counts anew"


def test_nothing_but_seed_and_state_decides() -> None:
    def run(seed: int) -> list[list[Seat]]:
        matchmaker = Matchmaker(0.4, {"random": 0.1})
        return [matchmaker.assign(games_of(step, 10, seed=seed), MEMBERS) for step in range(1, 9)]

    assert run(7) == run(7)
    assert run(7) != run(8)


@given(st.integers(0, 9), st.integers(1, 20), st.booleans())
def test_a_resumed_run_goes_on_alike(cut: int, count: int, sort_keys: bool) -> None:
    """Through JSON, saved after any step."""

    def play(matchmaker: Matchmaker, step: int) -> Any:
        members = MEMBERS[: step % 4]
        return matchmaker.assign(games_of(step, count), members), matchmaker.state_dict()

    straight = Matchmaker(0.4, {"random": 0.1})
    resumed = Matchmaker(0.4, {"random": 0.1})
    for step in range(1, 10):
        if step == cut:
            state = json.dumps(resumed.state_dict(), sort_keys=sort_keys)
            resumed = Matchmaker(0.4, {"random": 0.1})
            resumed.assign(games_of(1, 3), MEMBERS)  # is forgotten
            resumed.load_state_dict(json.loads(state))
        assert play(straight, step) == play(resumed, step)


def test_a_run_may_go_on_with_other_shares() -> None:
    before = Matchmaker(0.5, {"random": 0.1})
    before.assign(games_of(1, 7), MEMBERS)
    after = Matchmaker(0.25)
    after.load_state_dict(before.state_dict())
    assert kinds(after.assign(games_of(2, 40), MEMBERS))["pool"] in (9, 10, 11)


def test_no_self_play_is_made_up_for_where_there_is_none() -> None:
    before = Matchmaker(0.4, {"random": 0.3})
    assert kinds(before.assign(games_of(1, 1), MEMBERS)) == {"pool": 1}  # owed now: 0.3 of each of the others
    after = Matchmaker(1.0)
    after.load_state_dict(before.state_dict())
    assert kinds(after.assign(games_of(2, 1), MEMBERS)) == {"pool": 1}


def test_no_games_are_nobodys() -> None:
    assert Matchmaker(0.5).assign([], MEMBERS) == []


@pytest.mark.parametrize(
    ("ratio", "shares", "message"),
    [
        (0.8, {"random": 0.3}, r"fsp\.ratio=0\.8, opponents: random: share=0\.3: must be at most 1 together"),
    ],
)
def test_shares_out_of_range_are_refused(ratio: Any, shares: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Matchmaker(ratio, shares)


def test_a_member_is_not_named_like_another_opponent() -> None:
    with pytest.raises(ValueError, match="'random' is a member of the pool, and another opponent"):
        Matchmaker(0.5, {"random": 0.1}).assign(games_of(1, 4), ["random"])
