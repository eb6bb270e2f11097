"""A checkpoint's state of another form is refused by name, before a run goes on with it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.lab.saved_state import checked_state
from recipe.spiral.opponents.members import Member
from recipe.spiral.storage.checkpoints import STATE_FILE, BrokenCheckpoint, write_state
from recipe.spiral.storage.disk import read_json
from tests.checks.test_checks import config
from tests.storage.test_checkpoints import save, state

POOL = {"members": [asdict(Member("step_000002", 2))], "rating": 1000.0, "newest": 2, "late": 0}
WHOLE = state(10, rae_before=[[4, {"decay": 0.9}]], in_flight=[[1, 2, -1], [1, 3, None]])
WHOLE["league"]["pool"] = POOL
#: Where, another value, and what is said of it.
OTHERS: list[tuple[str, Any, str]] = [
    *(("records_after", value, "must be a whole number >= 0") for value in (None, [], "1", -1, 0.5, True, math.nan)),
    *(("league", value, "must be a mapping") for value in (None, [], "x", 1)),
    ("in_flight", [[1]], "in_flight.0: must be a list of another length"),
    ("rae_before", [[1, {"decay": math.inf}]], "rae_before.0.1.decay: must be a number"),
    ("baselines", {}, "lacks values"),
    ("baselines", {"values": [["KuhnPoker", 0, "self", 10**400]]}, "baselines.values.0.3: must be a number"),
    ("settings", {"opponents": [{}]}, "settings.opponents.0: must be text"),
    ("league.pool", {**POOL, "rating": 1e300}, "league.pool.rating: must be a number"),
    ("league.pool", {**POOL, "members": [{"name": "a"}]}, "league.pool.members.0: lacks step"),
]


def changed(place: str, value: Any) -> dict[str, Any]:
    made = json.loads(json.dumps(WHOLE))
    *around, last = place.split(".")
    inner = made
    for name in around:
        inner = inner[name]
    inner[last] = value
    return dict(made)


def test_what_we_write_is_of_the_form(tmp_path: Path) -> None:
    write_state(tmp_path, WHOLE)
    assert checked_state(tmp_path) == WHOLE


@pytest.mark.parametrize(("place", "value", "said"), OTHERS)
def test_another_form_is_refused_by_name(tmp_path: Path, place: str, value: Any, said: str) -> None:
    write_state(tmp_path, changed(place, value))
    with pytest.raises(BrokenCheckpoint, match=rf"{STATE_FILE}: {place.split('.')[0]}.*{said.split(': ')[-1]}"):
        checked_state(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((place, value) for place, value, _ in OTHERS),
        *(("guard", guard) for guard in ({"series": []}, {"series": {"a": 1}}, {"streaks": [[1]]}, {"active": [None]})),
        ("guard", {"voids": {"gpt": "x"}}),
        ("league.budgets", {"a": {"cost": "x"}}),
        ("league.pool", {**POOL, "members": [{"name": "../elsewhere", "step": 1}]}),
    ],
)
def test_a_start_refuses_it_in_a_line(tmp_path: Path, place: str, value: Any) -> None:
    made = config(tmp_path, "fsp.enabled=true")
    folder = save(Path(made.trainer.default_local_dir), 10)
    write_state(folder, changed(place, value))
    with pytest.raises(ConfigError):
        check(made)
    write_state(folder, {name: part for name, part in WHOLE.items() if name != place.split(".")[0]})
    if place in ("records_after", "guard", "in_flight", "baselines"):
        with pytest.raises(ConfigError, match=rf"{STATE_FILE}.*(lacks {place}|'{place}')"):
            check(made)


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "\0"])
def test_a_file_of_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")
