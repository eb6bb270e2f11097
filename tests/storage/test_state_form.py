"""A state file that is accepted can be gone on from; of one that is damaged, a line says where to go on instead."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.opponents.budgets import Spent
from recipe.spiral.lab.watching.guard import Bounds, Guard
from recipe.spiral.players.records import Usage
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.storage.checkpoints import STATE_FILE, TRACKER, BrokenCheckpoint, check_resumable
from recipe.spiral.storage.state_form import wrong_in
from recipe.spiral.training.turn_batches import GameLength
from tests.made import record
from tests.opponents.test_league import league, play, snapshot
from tests.storage.test_checkpoints import save, state

STEP = 6
API = {"kind": "api", "model": "m", "base_url": "http://localhost:1", "share": 0.1, "budget_tokens": 10**6}


class Run:
    """The parts that a run's state consists of, with something in each."""

    def __init__(self, folder: Path) -> None:
        self.baselines = RoleBaselines()
        self.guard = Guard(2, 1, Bounds(0.5, 0.5, 0.1, 2.0, 0.5, 0.5, 10.0))
        self.length = GameLength()
        self.league = league(folder, "fsp.members_per_step=2", opponents=[API])

    def play(self, step: int) -> None:
        """A step, which uses all of the state."""
        self.baselines.update([record(0, rewards=(1.0, -1.0)), record(1, game="KuhnPoker", opponent="pool")])
        self.guard.look({f"games/TicTacToe/p{p}/entropy": 0.01 * step for p in (0, 1)} | {"actor/grad_norm": 1.0})
        self.length.add(4, 20)
        self.length.games_for(10)
        play(self.league, step)
        self.league.count([], [])
        self.league.budgets.count([Spent("m", Usage(10, 20, 0.5))])
        json.dumps(self.state(step), allow_nan=False)
        assert all(isinstance(value, float) for value in self.league.metrics(step).values())

    def state(self, step: int) -> dict[str, Any]:
        return {
            "step": step,
            "critic": False,
            "torch": "2",
            "settings": {"seed": 3, "opponents": ["m"]},
            "asynchronous": False,
            "records_after": 0,
            "in_flight": [],
            "baselines": self.baselines.state_dict(),
            "guard": self.guard.state_dict(),
            "game_length": self.length.state_dict(),
            "league": self.league.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.baselines.load_state_dict(state["baselines"])
        self.guard.load_state_dict(state["guard"])
        self.length.load_state_dict(state["game_length"])
        self.league.restore(state["league"], None, [], "model", STEP)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run")
    run = Run(folder)
    run.league.restore({}, None, [], "model")
    run.league.join(0, snapshot)
    for step in range(1, STEP + 1):
        run.play(step)
    return folder, run.state(STEP)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places inside of nested mappings and lists; of a list, the last element stands for all."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, element in list(inner)[-1 if isinstance(value, list) else 0 :]:
        yield (*place, key)
        yield from places(element, (*place, key))


GONE = object()


def damaged(state: dict[str, Any], place: tuple[Any, ...], to: Any) -> dict[str, Any]:
    whole = copy.deepcopy(state)
    *path, last = place
    inner: Any = whole
    for key in path:
        inner = inner[key]
    if to is GONE:
        del inner[last]
    else:
        inner[last] = to
    return whole


def test_what_a_run_writes_is_accepted(played: tuple[Path, dict[str, Any]]) -> None:
    assert wrong_in(json.dumps(played[1]).encode()) == ""


@pytest.mark.parametrize(
    "to",
    [GONE, None, True, -1, 10**400, 0.5, float("nan"), "../x", [], [[1, 2, 3]], {}, {"a": 1}],
    ids=lambda to: "gone" if to is GONE else str(to)[:8],
)
def test_a_run_goes_on_from_whatever_is_accepted(tmp_path: Path, played: tuple[Path, dict[str, Any]], to: Any) -> None:
    """Each value of the state is damaged in turn."""
    folder, state = played
    accepted = 0
    for place in places(state):
        changed = damaged(state, place, to)
        if wrong_in(json.dumps(changed).encode()):
            continue
        accepted += 1
        run = Run(Path(shutil.copytree(folder, tmp_path / str(accepted))))
        try:
            run.restore(json.loads(json.dumps(changed)))
            run.play(STEP + 1)
        except Exception as error:
            raise AssertionError(f"{place} = {to!r}") from error
    assert accepted < 0.7 * sum(1 for _ in places(state)), "and most damage is not accepted"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", r"damaged: spiral\.json: step: Field required"),
        ('{"step": 20}', r"damaged: spiral\.json: critic: Field required"),
        (json.dumps(state(10)), r"damaged: spiral\.json: is of step 10"),
        (json.dumps(state(20, baselines=[])), r"damaged: spiral\.json: baselines: Input should be "),
        (json.dumps(state(20, guard={"series": 7})), r"damaged: spiral\.json: guard\.series: Input"),
        (json.dumps(state(20, baselines={"values": [["Nim", 0, "self", math.nan]]})), r"baselines\.values\.0\.3"),
        ("[]", r"missing or cut short: spiral\.json"),
        ("", r"missing or cut short: spiral\.json"),
    ],
)
def test_a_damaged_state_names_an_older_checkpoint(tmp_path: Path, text: str, what: str) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20) / STATE_FILE).write_text(text)
    with pytest.raises(BrokenCheckpoint, match=rf"{what}.*go on from step 10 with .*global_step_10$") as raised:
        check_resumable(tmp_path, 1)
    assert "\n" not in str(raised.value)
    (tmp_path / TRACKER).write_text("torn")
    with pytest.raises(BrokenCheckpoint, match="write 10 into that file"):
        check_resumable(tmp_path, 1)
