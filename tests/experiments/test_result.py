"""Result files: whole, checked, and with what they came from."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.result import BadResult, Result, command_line

RESULT = Result(
    name="toy",
    title="A toy",
    command="python -m toy",
    commit="0123456789ab",
    seeds=(0, 1, 2),
    games=96,
    minutes=1.5,
    settings={"decay": 0.95},
    rows=[{"game": "A", "ratio": 0.5}, {"game": "B", "ratio": 1.0}],
    figures={},
)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = RESULT.write(tmp_path / "new")
    assert file.name == "toy.json" and Result.read(file) == RESULT
    assert [path.name for path in file.parent.iterdir()] == ["toy.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"games": 0}, "games: 0"),
        ({"games": "96"}, "games: '96'"),
        ({"minutes": True}, "minutes: True"),
        ({"seeds": []}, "seeds"),
        ({"seeds": 3}, "seeds: must be a list"),
        ({"command": " "}, "command: must not be empty"),
        ({"rows": []}, "rows: must be objects"),
        ({"rows": [{"game": "A"}, {"game": "B", "ratio": 1}]}, r"rows\[1\].*ratio"),
        ({"more": 1}, "missing or unknown: more"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = tmp_path / "toy.json"
    file.write_text(json.dumps({**asdict(RESULT), **change}))
    with pytest.raises(BadResult, match=rf"toy\.json: .*{said}"):
        Result.read(file)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    file = RESULT.write(tmp_path)
    file.write_text(file.read_text()[:100])
    with pytest.raises(BadResult, match=r"toy\.json"):
        Result.read(file)


def test_a_figure_that_is_no_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        replace(RESULT, rows=[{"ratio": float("nan")}]).write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_can_be_typed_again() -> None:
    assert command_line("a.b", ["seeds=[0, 1]", "decay=0.9"]) == "python -m a.b 'seeds=[0, 1]' decay=0.9"
