"""Who plays whom is a function of a game's key: shares and roles come out even, and groups stay together."""

from __future__ import annotations

from collections import Counter

from recipe.spiral.opponents.matchmaking import draw_seat
from recipe.spiral.players.seats import PAST_SELF, Opponent
from recipe.spiral.players.seeds import GameKey

SHARES = {PAST_SELF: 0.5, "random": 0.1}
MEMBERS = ["step_000001", "step_000002"]


def keys(count: int, per_group: int = 1, step: int = 1) -> list[GameKey]:
    groups = [index - index % per_group if per_group > 1 else None for index in range(count)]
    return [GameKey("train", 3, step, index, group=group) for index, group in enumerate(groups)]


def test_opponents_have_their_shares_and_both_roles() -> None:
    seats = [draw_seat(key, SHARES, MEMBERS) for key in keys(8000)]
    kinds = Counter(seat.opponent.kind for seat in seats)
    assert abs(kinds[PAST_SELF] - 4000) < 200 and abs(kinds["random"] - 800) < 100
    assert kinds["self"] == 8000 - kinds[PAST_SELF] - kinds["random"]
    against = Counter((seat.opponent.name, seat.trainable) for seat in seats if seat.opponent != Opponent())
    assert len(against) == 6
    for name in (*MEMBERS, "random"):
        assert abs(against[name, (0,)] - against[name, (1,)]) < 0.15 * (against[name, (0,)] + against[name, (1,)])


def test_a_seat_depends_on_nothing_but_the_key() -> None:
    some = keys(100)
    seats = {key: draw_seat(key, SHARES, MEMBERS) for key in some}
    assert seats == {key: draw_seat(key, SHARES, MEMBERS) for key in reversed(some)}
    assert list(seats.values()) != [draw_seat(key, SHARES, MEMBERS) for key in keys(100, step=2)]


def test_a_group_has_one_opponent_and_one_role() -> None:
    """Games of a group are compared with each other, role by role."""
    for size in (2, 8):
        games = keys(800, per_group=size)
        seats = [draw_seat(key, {PAST_SELF: 1.0}, MEMBERS, size) for key in games]
        for first in range(0, 800, size):
            assert len(set(seats[first : first + size])) == 1
        assert Counter(seat.trainable for seat in seats) == {(0,): 400, (1,): 400}
