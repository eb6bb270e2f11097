"""Result files: they are whole and checked, and say by which code they came about."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.result import (
    BadResult,
    Result,
    add_commit,
    command_line,
    commits_of,
    current_commit,
    weights_digest,
)

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


def test_the_commit_says_whether_the_code_was_changed(tmp_path: Path) -> None:
    assert current_commit(tmp_path) == "unknown"

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    code = tmp_path / "recipe" / "code.py"
    code.parent.mkdir()
    code.write_text("a = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = current_commit(tmp_path)
    assert len(clean) == 12
    (tmp_path / "notes").touch()
    assert current_commit(tmp_path) == clean
    code.write_text("a = 2\n")
    assert current_commit(tmp_path) == f"{clean}-modified"
    git("commit", "-am", "second")
    preset = tmp_path / "config" / "experiment" / "kuhn.yaml"
    preset.parent.mkdir(parents=True)
    preset.touch()
    assert current_commit(tmp_path).endswith("-modified") and current_commit(tmp_path) != f"{clean}-modified"


def test_every_folder_has_the_commits_that_worked_there(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    for now, at_work in (("1", folders[:2]), ("1", folders[:1]), ("2", folders[1:2])):
        for folder in at_work:
            add_commit(folder, now)
    assert commits_of(folders[:1]) == ["1"], "not what worked beside it"
    assert commits_of(folders) == ["1", "2", "unknown"]
    add_commit(folders[1], "3", anew=True)
    assert commits_of(folders[1:2]) == ["3"]


def test_a_models_digest_is_that_of_its_weights(tmp_path: Path) -> None:
    assert weights_digest(tmp_path) == weights_digest(tmp_path / "nowhere") == ""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    digest = weights_digest(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert len(digest) == 64 and weights_digest(tmp_path) == digest
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert weights_digest(tmp_path) != digest
