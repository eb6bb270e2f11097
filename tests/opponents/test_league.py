"""The league: who is seated where (a function of a game's key), what is loaded, what a checkpoint brings back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.opponents.league import League, draw_seat
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seats import BASE, PAST_SELF, Opponent, Seat
from recipe.spiral.players.seeds import GameKey
from tests.fake_verl import CONFIG
from tests.opponents.folders import model

GAMES = ("TicTacToe", "KuhnPoker")


class Engine:
    """Holds models by name, as the engines do."""

    def __init__(self, slots: int = 0) -> None:
        self.held: list[str] = []
        self.slots = slots
        self.most = 0

    def load(self, models: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
        assert all((path / "config.json").is_file() for path in models.values()), "weights are there"
        self.held, self.most = list(models), max(self.most, len(models))
        slots = range(self.slots or len(models))
        return {name: tuple(slots[place :: len(models)]) for place, name in enumerate(models)}

    def sleep(self) -> None:
        """Nothing depends on it here."""


def league(run_dir: Path, *overrides: str, opponents: Any = ()) -> League:
    config = OmegaConf.create(
        {
            "seed": 3,
            "run_dir": str(run_dir),
            "fsp": {**CONFIG.fsp, "enabled": True, "update_interval": 1, "size": 4, "ratio": 0.5},
            "opponents": list(opponents),
            "data": {"games_per_start": 1},
            "trainer": {"v1": {"trainer_mode": "sync"}},
            "actor_rollout_ref": {"model": {"path": "model", "lora_rank": 0}, "rollout": {"agent": {"num_workers": 2}}},
        }
    )
    made = League(OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides))))
    made.engine = Engine()
    return made


def snapshot(folder: str) -> None:
    """A worker's ``save_snapshot``."""
    model(Path(folder))


def games(step: int, number: int = 16) -> list[tuple[GameKey, str]]:
    return [(GameKey("train", 3, step, index), GAMES[index % 2]) for index in range(number)]


def play(made: League, step: int, number: int = 16) -> list[Seat]:
    """A step as the trainer takes it; the learner wins as player 0."""
    made.begin_step(step)
    seats = [made.seat(key, game) for key, game in games(step, number)]
    made.count([played(key, game, seat) for (key, game), seat in zip(games(step, number), seats, strict=True)])
    if made.due(step):
        made.join(step, snapshot)
    return seats


def played(key: GameKey, game: str, seat: Seat) -> GameRecord:
    name = seat.opponent.name if seat.opponent != Opponent() else "policy"
    names = ("policy", name) if seat.trainable == (0,) else (name, "policy")
    return GameRecord(key, game, names, seat.trainable, rewards=(1.0, -1.0), opponent=seat.opponent.kind)


def test_games_of_the_pool_are_played_against_the_members_that_are_loaded(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.members_per_step=2")
    made.restore({}, None)
    assert {seat.opponent.kind for seat in play(made, 1)} == {"self"}, "there is nobody yet"
    for step in range(2, 12):
        seats = play(made, step, 64)
        against = [seat for seat in seats if seat.opponent.kind == "pool"]
        assert 16 < len(against) < 48
        assert {seat.opponent.name for seat in against} == set(made.engine.held)
        assert all(seat.model and seat.slot == made.engine.held.index(seat.opponent.name) for seat in against)
    assert len(made.pool.members) == 4
    assert made.folder.names == sorted(made.pool.members), "who left takes no room"


def test_a_checkpoint_brings_back_exactly_what_was(tmp_path: Path) -> None:
    """Killed after it went on, evicting members and adding others: the same games are played again."""
    first = league(tmp_path)
    first.restore({}, None)
    for step in range(1, 6):
        play(first, step)
    checkpoint = tmp_path / "global_step_5"
    checkpoint.mkdir()
    state = first.state_dict()
    first.save_into(checkpoint)
    on = [play(first, step) for step in range(6, 12)]

    second = league(tmp_path)
    second.restore(state, checkpoint)
    assert second.folder.names == sorted(second.pool.members)
    assert [play(second, step) for step in range(6, 12)] == on
    assert second.state_dict() == first.state_dict()


def test_a_member_whose_files_are_gone_is_named(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.members_per_step=4")
    made.restore({}, None)
    for step in range(3):
        made.join(step, snapshot)
    (made.folder.path("step_000001") / "config.json").unlink()
    with pytest.raises(RuntimeError, match="step_000001"):
        made.begin_step(3)
    made.folder.remove("step_000001")
    made.folder.save_into(tmp_path / "checkpoint", made.folder.names)
    with pytest.raises(RuntimeError, match="step_000001"):
        league(tmp_path / "other").restore(made.state_dict(), tmp_path / "checkpoint")


def test_initial_members_never_leave_and_are_as_old_as_their_start(tmp_path: Path) -> None:
    base = model(tmp_path / "model")
    given = f"fsp.initial=[{BASE},{base}]", f"actor_rollout_ref.model.path={base}"
    made = league(tmp_path, *given, opponents=[{"kind": "random", "name": "given-model", "share": 0.1}])
    made.restore({}, None, step=40)
    for step in range(41, 46):
        made.join(step, snapshot)
    first, second, *_ = made.pool.members.values()
    assert [(first.name, first.step), (second.name, second.step)] == [(BASE, 40), ("given-model-2", 40)]
    assert len(made.pool.members) == 4
    assert (made.folder.path("given-model-2") / "config.json").samefile(base / "config.json")


def test_fixed_opponents_have_their_shares_in_the_games_that_they_play(tmp_path: Path) -> None:
    entries = [{"kind": "random", "share": 0.25}, {"kind": "perfect", "share": 0.25, "games": ["TicTacToe"]}]
    made = league(tmp_path, "fsp.enabled=false", opponents=entries)
    made.begin_step(1)
    some = games(1, 4000)
    counts = Counter((game, made.seat(key, game).opponent.name) for key, game in some)
    expected = {
        ("TicTacToe", "self"): 1000,
        ("TicTacToe", "random"): 500,
        ("TicTacToe", "perfect"): 500,
        ("KuhnPoker", "self"): 1500,
        ("KuhnPoker", "random"): 500,
    }
    assert counts.keys() == expected.keys()
    assert all(abs(counts[which] - number) < 80 for which, number in expected.items())


def test_a_frozen_model_is_always_loaded(tmp_path: Path) -> None:
    path = model(tmp_path / "frozen")
    entries = [{"kind": "model", "name": "frozen", "path": str(path), "share": 0.25, "games": ["KuhnPoker"]}]
    made = league(tmp_path, opponents=entries)
    made.restore({}, None)
    made.join(0, snapshot)
    made.begin_step(1)
    assert made.engine.held == ["step_000000", "frozen"]
    seated = {(game, made.seat(key, game)) for key, game in games(1, 64)}
    assert {game for game, seat in seated if seat.opponent.name == "frozen"} == {"KuhnPoker"}
    assert {seat for _, seat in seated if seat.opponent == Opponent()} == {Seat()}, "no slot of the model's"


def test_games_that_are_compared_take_turns_at_an_opponents_slots_too(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.ratio=1", "data.games_per_start=4")
    made.restore({}, None)
    made.join(0, snapshot)
    made.engine = Engine(slots=8)
    made.begin_step(1)
    starts = [GameKey("train", 3, 1, index, group=index) for index in range(0, 256, 4)]
    seats = [made.seat(key, "TicTacToe") for key in starts]
    assert {seat.slot for seat in seats} == set(range(8))
    assert {(seat.slot, seat.trainable) for seat in seats} == {(slot, (role,)) for slot in range(8) for role in (0, 1)}


# -- the asynchronous modes --------------------------------------------------------------------------------------------


def overlapping(run_dir: Path) -> tuple[League, dict[int, set[str]]]:
    """A league, and whom the games under way are played against, by the step that launched them."""
    made = league(run_dir, "fsp.size=2", "trainer.v1.trainer_mode=colocate_async")
    under_way: dict[int, set[str]] = {}
    made.in_play = lambda: {name for names in under_way.values() for name in names}
    made.restore({}, None)
    return made, under_way


def test_a_member_changes_only_when_nobody_plays_against_it(tmp_path: Path) -> None:
    """Games last three steps here, and a member leaves after two: it stays loaded, and on the disk, until they end."""
    made, under_way = overlapping(tmp_path)
    made.join(0, snapshot)
    seen = set()
    for step in range(1, 9):
        made.begin_step(step)
        seats = [made.seat(key, game) for key, game in games(step)]
        against = {seat.opponent.name for seat in seats if seat.model}
        assert len(against) == 1
        under_way[step] = against
        under_way.pop(step - 3, None)
        seen |= against
        for name in made.in_play():
            assert (made.folder.path(name) / "config.json").is_file() and name in made.engine.held
        made.join(step, snapshot)
    assert len(seen) > 2 and made.engine.most == 2
    under_way.clear()
    made.begin_step(9)
    made.join(9, snapshot)
    assert {*made.folder.names} <= {*made.pool.members, *made.engine.held}, "those that left are gone"


def test_a_checkpoint_has_members_that_left_while_they_play(tmp_path: Path) -> None:
    made, under_way = overlapping(tmp_path / "run")
    for step in range(4):
        made.join(step, snapshot)
    first = made.folder.names[0]
    under_way[1] = {first}
    made.begin_step(4)
    made.join(4, snapshot)
    made.join(5, snapshot)
    assert first not in made.pool.members and first in made.folder.names
    made.save_into(tmp_path / "checkpoint")
    again, later = overlapping(tmp_path / "again")
    again.restore(json.loads(json.dumps(made.state_dict())), tmp_path / "checkpoint")
    later[1] = {first}
    again.begin_step(6)
    assert first in again.engine.held


# -- seats -------------------------------------------------------------------------------------------------------------

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
