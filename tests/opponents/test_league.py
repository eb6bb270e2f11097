"""The league: who is seated where, what is loaded, what a checkpoint brings back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from recipe.spiral.opponents.fixed_opponents import find_opponent, parse_opponents
from recipe.spiral.opponents.league import League, MemberGone
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seats import BASE, Opponent, Seat
from recipe.spiral.players.seeds import GameKey
from tests.fake_verl import CONFIG

GAMES = ("TicTacToe", "KuhnPoker")


class Engine:
    """Holds models by name, as the engines do; notes what is asked of it."""

    def __init__(self, slots: int = 0) -> None:
        self.held: list[str] = []
        self.asleep = True
        self.slots = slots
        self.again: set[str] = set()
        self.loads = self.kept = 0

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        assert all((path / "config.json").is_file() for path in models.values()), (
            "weights are there when they are loaded"
        )
        self.kept = len(self.again & set(self.held) & set(models))
        self.loads = len(models) - self.kept
        self.asleep, self.held = False, list(models)
        slots = range(self.slots or len(models))
        return {name: tuple(slots[place :: len(models)]) for place, name in enumerate(models)}

    def sleep(self, again: Collection[str] = (), in_play: Collection[str] | None = None) -> None:
        self.asleep, self.again, self.in_play = True, set(again), in_play


def league(run_dir: Path, *overrides: str, opponents: Any = ()) -> League:
    config = OmegaConf.create(
        {
            "seed": 3,
            "run_dir": str(run_dir),
            "fsp": {**CONFIG.fsp, "enabled": True, "update_interval": 1, "size": 4},
            "opponents": list(opponents),
            "actor_rollout_ref": {
                "model": {"path": "model", "lora_rank": 0},
                "rollout": {"agent": {"num_workers": 2}},
            },
        }
    )
    made = League(OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides))))
    made.engine = Engine()
    return made


def snapshot(folder: str) -> None:
    """A worker's ``save_snapshot``."""
    (Path(folder) / "config.json").write_text("{}")
    save_file({"weight": torch.zeros(2)}, Path(folder) / "model.safetensors")


def games(step: int, number: int = 16) -> list[tuple[GameKey, str]]:
    return [(GameKey("train", 3, step, index), GAMES[index % 2]) for index in range(number)]


def play(made: League, step: int, number: int = 16) -> list[Seat]:
    """A step as the trainer takes it; the learner wins as player 0."""
    made.begin_step(step)
    seats = made.seat(games(step, number))
    made.sleep()
    made.count([played(key, game, seat) for (key, game), seat in zip(games(step, number), seats, strict=True)], [])
    if made.due(step):
        made.join(step, snapshot)
    return seats


def played(key: GameKey, game: str, seat: Seat) -> GameRecord:
    name = seat.opponent.name if seat.opponent != Opponent() else "policy"
    names = ("policy", name) if seat.trainable == (0,) else (name, "policy")
    return GameRecord(key, game, names, seat.trainable, rewards=(1.0, -1.0), opponent=seat.opponent.kind)


def test_half_of_the_games_are_played_against_the_member_that_is_loaded(tmp_path: Path) -> None:
    made = league(tmp_path)
    made.restore({}, None, [], "model")
    assert {seat.opponent.kind for seat in play(made, 1)} == {"self"}, "there is nobody yet"
    for step in range(2, 12):
        seats = play(made, step)
        kinds = Counter(seat.opponent.kind for seat in seats)
        assert kinds == {"self": 8, "pool": 8}
        against = [seat for seat in seats if seat.opponent.kind == "pool"]
        assert {seat.opponent.name for seat in against} == set(made.engine.held) and made.engine.asleep
        assert {(seat.model, seat.slot) for seat in against} == {(True, 0)}
        assert Counter(seat.trainable for seat in against) == {(0,): 4, (1,): 4}
    assert len(made.pool.names) == 4
    assert sorted(made.folder.names) == sorted(made.pool.names), "who left takes no room"


def test_several_members_are_loaded_and_played_as_often(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.members_per_step=3", "fsp.ratio=0.75")
    made.restore({}, None, [], "model")
    for step in range(3):
        made.join(step, snapshot)
    seats = play(made, 3)
    assert Counter(seat.opponent.name for seat in seats if seat.opponent.kind == "pool") == {
        "step_000000": 4,
        "step_000001": 4,
        "step_000002": 4,
    }
    assert {seat.slot for seat in seats if seat.opponent.kind == "pool"} == {0, 1, 2}


def test_games_against_a_member_are_spread_over_its_slots_and_nothing_else_changes(tmp_path: Path) -> None:
    """The same keys, seeds, opponents and roles, however many engines serve a member."""
    steps: dict[int, list[list[Seat]]] = {}
    for slots in (1, 3, 8):
        made = league(tmp_path / str(slots), "fsp.ratio=0.75")
        made.engine = Engine(slots)
        made.restore({}, None, [], "model")
        made.join(0, snapshot)
        steps[slots] = []
        for step in range(1, 8):
            made.begin_step(step)
            seats = made.seat(games(step, 20)) + made.seat(
                [(replace(key, index=key.index + 20), game) for key, game in games(step, 12)]
            )
            against = [(seat.slot, GAMES[place % 2]) for place, seat in enumerate(seats) if seat.model]
            for used in (
                Counter(slot for slot, _ in against),
                *(Counter(slot for slot, game in against if game == one) for one in GAMES),
            ):
                assert len(used) == slots and max(used.values()) - min(used.values()) <= 1 + (len(used) == 1)
            steps[slots].append([replace(seat, slot=None) for seat in seats])
    assert steps[1] == steps[3] == steps[8]


def test_whoever_may_play_again_is_kept_asleep_and_loads_are_counted(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.update_interval=null")
    made.restore({}, None, [], "model")
    assert "opponents/loads" not in made.metrics(0)
    for step in range(3):
        made.pool.add(f"step_{step:06d}", step)
        with made.folder.writing(f"step_{step:06d}") as place:
            snapshot(str(place))
    loads = 0
    for step in range(1, 21):
        before = set(made.engine.held)
        play(made, step)
        metrics = made.metrics(step)
        assert metrics["opponents/kept"] == len(before & set(made.engine.held))
        assert metrics["opponents/loads"] + metrics["opponents/kept"] == 1
        loads += int(metrics["opponents/loads"])
    assert 8 <= loads <= 18, "one of three is drawn; the one before is drawn again in a third of the steps"


def test_a_step_that_is_begun_again_keeps_its_loads(tmp_path: Path) -> None:
    """A start with games in flight: they are launched again before its first step begins."""
    made = league(tmp_path)
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    for _ in range(2):
        made.begin_step(1)
        metrics = made.metrics(1)
        assert (metrics["opponents/loads"], metrics["opponents/kept"]) == (1, 0)
        made.engine.again = {*made.engine.held}
    made.begin_step(2)
    assert made.metrics(2)["opponents/loads"] == 0


def test_a_checkpoint_brings_back_exactly_what_was(tmp_path: Path) -> None:
    """Killed after it went on, evicting members and adding others: the same games are played again."""
    first = league(tmp_path)
    first.restore({}, None, [], "model")
    for step in range(1, 6):
        play(first, step)
    checkpoint = tmp_path / "global_step_5"
    checkpoint.mkdir()
    state = first.state_dict()
    first.save_into(checkpoint)
    on = [play(first, step) for step in range(6, 12)]

    second = league(tmp_path)
    second.restore(state, checkpoint, [], "model")
    assert second.folder.names == sorted(second.pool.names)
    assert [play(second, step) for step in range(6, 12)] == on
    assert second.state_dict() == first.state_dict()


def test_a_fresh_start_forgets_the_pool_of_a_run_that_was_given_up(tmp_path: Path) -> None:
    made = league(tmp_path)
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    again = league(tmp_path)
    again.restore({}, None, [], "model")
    assert (again.folder.names, again.pool.names) == ([], [])


@pytest.mark.parametrize("stop", [False, True])
def test_a_member_whose_files_are_gone(tmp_path: Path, stop: bool) -> None:
    made = league(tmp_path, f"fsp.on_missing={'stop' if stop else 'leave_out'}", "fsp.members_per_step=4")
    lines: list[str] = []
    made.say = lines.append
    made.restore({}, None, [], "model")
    for step in range(3):
        made.join(step, snapshot)
    made.folder.remove("step_000001")
    if stop:
        with pytest.raises(MemberGone, match=r"step_000001: their files are gone.*fsp.on_missing=leave_out"):
            made.begin_step(3)
        return
    made.begin_step(3)
    assert made.pool.names == ["step_000000", "step_000002"]
    assert "step_000001" in lines[0] and "left out" in lines[0]


def test_a_member_with_a_flipped_bit_is_not_played(tmp_path: Path) -> None:
    """Also when that happens after it was played."""
    made = league(tmp_path, "fsp.members_per_step=4")
    lines: list[str] = []
    made.say = lines.append
    made.restore({}, None, [], "model")
    for step in range(3):
        made.join(step, snapshot)
    for name in ("step_000001", "step_000002"):
        weights = next(made.folder.path(name).glob("*.safetensors"))
        flipped = bytearray(weights.read_bytes())
        flipped[-1] ^= 1
        weights.write_bytes(flipped)
        made.begin_step(3)
        assert name not in made.pool.names
        assert f"{name}: their files are gone or damaged" in lines[-1]
    assert made.pool.names == ["step_000000"] and len(lines) == 2


def test_initial_members_never_leave(tmp_path: Path) -> None:
    base = tmp_path / "model"
    base.mkdir()
    snapshot(str(base))
    made = league(tmp_path)
    made.restore({}, None, [BASE, {"path": str(base)}], str(base))
    for step in range(20):
        made.join(step, snapshot)
    assert made.pool.names[:2] == [BASE, "model"] and len(made.pool.names) == 4
    assert (made.folder.path("model") / "model.safetensors").stat().st_ino == (base / "model.safetensors").stat().st_ino


def test_with_adapters_the_base_needs_no_files(tmp_path: Path) -> None:
    made = league(tmp_path, "actor_rollout_ref.model.lora_rank=8")
    made.engine = None
    made.restore({}, None, [BASE], "model")
    made.begin_step(1)
    assert (made.pool.names, made.folder.names) == ([BASE], [])
    assert Counter(seat.opponent.name for seat in made.seat(games(1))) == {"self": 8, BASE: 8}


def test_fixed_opponents_have_their_shares_in_the_games_that_they_play(tmp_path: Path) -> None:
    entries = [{"kind": "random", "share": 0.25}, {"kind": "perfect", "share": 0.25, "games": ["TicTacToe"]}]
    made = league(tmp_path, "fsp.enabled=false", opponents=entries)
    counts: Counter[tuple[str, str]] = Counter()
    roles: Counter[tuple[str, str, int]] = Counter()
    for step in range(1, 21):
        made.begin_step(step)
        for (_, game), seat in zip(games(step, 8), made.seat(games(step, 8)), strict=True):
            counts[game, seat.opponent.name] += 1
            assert not seat.model
            if seat.opponent != Opponent():
                roles[game, seat.opponent.name, seat.trainable[0]] += 1
    assert counts == {
        ("TicTacToe", "self"): 40,
        ("TicTacToe", "random"): 20,
        ("TicTacToe", "perfect"): 20,
        ("KuhnPoker", "self"): 60,
        ("KuhnPoker", "random"): 20,
    }
    assert set(roles.values()) == {10}


def test_a_frozen_model_is_always_held(tmp_path: Path) -> None:
    path = tmp_path / "frozen"
    path.mkdir()
    snapshot(str(path))
    entries = [{"kind": "model", "name": "frozen", "path": str(path), "share": 0.25}]
    made = league(tmp_path, opponents=entries)
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    assert made.served == 2
    made.begin_step(1)
    assert made.engine.held == ["step_000000", "frozen"]
    assert Counter(seat.opponent.name for seat in made.seat(games(1))) == {"self": 4, "frozen": 4, "step_000000": 8}


def test_a_game_that_a_model_does_not_play_is_self_play_without_it(tmp_path: Path) -> None:
    snapshot(str(tmp_path))
    entry = {"kind": "model", "name": "frozen", "path": str(tmp_path), "share": 0.5, "games": ["KuhnPoker"]}
    made = league(tmp_path / "run", "fsp.enabled=false", opponents=[entry])
    made.begin_step(1)
    seated = {(game, seat) for (_, game), seat in zip(games(1), made.seat(games(1)), strict=True)}
    assert {game for game, seat in seated if seat.opponent.name == "frozen"} == {"KuhnPoker"}
    assert {seat for _, seat in seated if seat.opponent == Opponent()} == {Seat()}, "no slot of the model's"


def test_what_is_counted_of_a_step(tmp_path: Path) -> None:
    made = league(tmp_path)
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    play(made, 1)
    metrics = made.metrics(1)
    assert metrics["fsp/member/0/share"] == 0.5
    assert metrics["fsp/member/0/games"] == 8.0
    assert metrics["fsp/member/0/step"] == 0.0
    assert metrics["fsp/size"] == 2.0


def test_metrics_do_not_grow_with_every_past_member(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.members_per_step=2")
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    names = set()
    for step in range(1, 151):
        play(made, step)
        names |= {name for name in made.metrics(step) if name.startswith("fsp/member/")}
    assert {name.split("/")[2] for name in names} == {"0", "1"}
    roles = made.state_dict()["matchmaker"]["roles"]
    assert all(
        abs(sum(p[0] for p in played.values()) - sum(p[1] for p in played.values())) <= 1 for played in roles.values()
    )


def test_without_opponents_everybody_plays_himself(tmp_path: Path) -> None:
    made = league(tmp_path, "fsp.enabled=false")
    made.engine = None
    made.restore({}, None, [], "model")
    made.begin_step(1)
    assert made.seat(games(1)) == [Seat()] * 16
    assert not made.due(5)
    assert not (tmp_path / "pool").exists() and made.served == 0 and made.metrics(1) == {}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"share": 0.1}], "must be {kind: random"),
        ([{"kind": "random", "share": 1.5}], "share=1.5: must be a share from 0 to 1"),
        ([{"kind": "random", "share": 0.1}, {"kind": "random", "share": 0.1}], "random is there twice"),
        ([{"kind": "random", "share": 0.6}, {"kind": "perfect", "share": 0.6}], "shares sum to 1.2"),
        ([{"kind": "random", "name": "pool", "share": 0.1}], "name='pool'"),
        ([{"kind": "random", "share": 0.1, "games": "TicTacToe"}], "must be a list of games"),
        ([{"kind": "random", "share": 0.1, "games": ["TicTacTo"]}], "TicTacToe"),
    ],
)
def test_opponents_that_cannot_be(entries: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_opponents(entries)


def test_an_opponent_that_no_entry_names_has_the_settings_of_its_kind() -> None:
    assert find_opponent("random", []).kind == "random"
    assert find_opponent("clever", [{"kind": "perfect", "name": "clever"}]).kind == "perfect"


@pytest.mark.parametrize(
    "seat",
    [Seat(), Seat(Opponent("pool", "step_000005"), (1,), True, 2), Seat(Opponent("random", "random"), (0,))],
)
def test_a_seat_travels_in_a_row(seat: Seat) -> None:
    assert Seat.from_row(seat.columns()) == seat
    assert seat.columns()["__rollout_n__"] == len(seat.trainable)


def test_a_member_of_which_a_file_is_gone_is_left_out(tmp_path: Path) -> None:
    made = league(tmp_path)
    made.say = lambda text: None
    made.restore({}, None, [], "model")
    for step in range(2):
        made.join(step, snapshot)
    (made.folder.path("step_000001") / "model.safetensors").unlink()
    for step in range(2, 12):
        made.begin_step(step)
    assert made.pool.names == ["step_000000"]


def test_a_pool_that_is_switched_off_for_a_while_is_not_lost(tmp_path: Path) -> None:
    first = league(tmp_path)
    first.restore({}, None, [], "model")
    for step in range(1, 4):
        play(first, step)
    checkpoint = tmp_path / "global_step_3"
    checkpoint.mkdir()
    first.save_into(checkpoint)
    off = league(tmp_path, "fsp.enabled=false")
    off.restore(first.state_dict(), checkpoint, [], "model")
    later = tmp_path / "global_step_6"
    later.mkdir()
    off.save_into(later)
    on = league(tmp_path)
    on.restore(off.state_dict(), later, [], "model")
    assert on.pool.names == first.pool.names == on.folder.names
    assert on.pool.rating == first.pool.rating


def test_members_that_join_a_run_on_the_way_are_as_old_as_that(tmp_path: Path) -> None:
    base = tmp_path / "model"
    base.mkdir()
    snapshot(str(base))
    made = league(tmp_path, opponents=[{"kind": "random", "name": "model", "share": 0.1}])
    made.restore({}, None, [BASE, {"path": str(base)}], str(base), step=40)
    assert [member.step for member in made.pool.members.values()] == [40, 40]
    assert "model" not in made.pool.names, "that is another opponent's name"


class Overlapping(Engine):
    """An engine whose models in play must stay, each where it is."""

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        assert {*(in_play or ())} & {*self.held} <= {*models}, "a game is under way against it"
        super().load(models)
        self.most = max(getattr(self, "most", 0), len(models))
        return dict.fromkeys(models, ())


def overlapping(run_dir: Path, mode: str = "colocate_async") -> tuple[League, dict[int, set[str]]]:
    """A league, and whom the games under way are played against, by the step that launched them."""
    made = league(run_dir, "fsp.size=2", f"trainer.v1.trainer_mode={mode}")
    made.engine = Overlapping()
    under_way: dict[int, set[str]] = {}
    made.in_play = lambda: {name for names in under_way.values() for name in names}
    return made, under_way


def test_a_member_changes_only_when_nobody_plays_against_it(tmp_path: Path) -> None:
    """Games last three steps here, and a member leaves after two: it stays loaded, and on the disk, until they end."""
    made, under_way = overlapping(tmp_path)
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    assert made.served == 2
    seen = set()
    for step in range(1, 15):
        made.begin_step(step)
        against = {seat.opponent.name for seat in made.seat(games(step)) if seat.model}
        assert len(against) == 1
        under_way[step] = against
        under_way.pop(step - 3, None)
        seen |= against
        for name in made.in_play():
            assert (made.folder.path(name) / "config.json").is_file() and name in made.engine.held
        made.sleep()
        assert made.engine.in_play == set(made.in_play())
        made.join(step, snapshot)
    assert len(seen) > 3 and made.engine.most == 2
    under_way.clear()
    made.begin_step(15)
    assert set(made.folder.names) == set(made.pool.names), "those that left are gone with their last game"


def test_a_step_is_the_trainers_where_keys_only_number_the_games(tmp_path: Path) -> None:
    """With batches of turns a block of keys lasts several steps: here key.step is 1 in all of them."""
    made = league(tmp_path, "fsp.size=2", "fsp.members_per_step=2", "trainer.v1.trainer_mode=colocate_async")
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    for step in range(1, 21):
        made.join(step, snapshot)
        made.begin_step(step)
        seats = made.seat(games(1))
        against = Counter(seat.opponent.name for seat in seats if seat.model)
        assert set(against.values()) == {4}, "each member as often in each step, the new one too"
    made.count([played(key, game, seat) for (key, game), seat in zip(games(1), seats, strict=True)], [])
    assert {"fsp/win/recent", "fsp/win/middle"} <= made.metrics(20).keys()


def test_a_checkpoint_has_members_that_left_while_they_play(tmp_path: Path) -> None:
    made, under_way = overlapping(tmp_path / "run")
    made.restore({}, None, [], "model")
    for step in range(4):
        made.join(step, snapshot)
    first = made.folder.names[0]
    under_way[1] = {first}
    made.begin_step(4)
    made.join(4, snapshot)
    made.join(5, snapshot)
    assert first not in made.pool.names and first in made.folder.names
    made.save_into(tmp_path / "checkpoint")
    again, later = overlapping(tmp_path / "again")
    again.restore(json.loads(json.dumps(made.state_dict())), tmp_path / "checkpoint", [], "model")
    assert first in again.folder.names
    later[1] = {first}
    again.begin_step(6)
    assert first in again.engine.held


def test_where_the_engine_has_devices_of_its_own_nobody_sleeps(tmp_path: Path) -> None:
    made, _ = overlapping(tmp_path, "separate_async")
    made.restore({}, None, [], "model")
    made.join(0, snapshot)
    made.begin_step(1)
    made.sleep()
    assert not made.engine.asleep
