"""Questions from files of every kind, and what is said where there are none."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.benchmark_questions import load

MMLU = [
    {"question_id": number, "question": f"Which, {number}?", "options": ["red", "green"], "answer": "B"}
    for number in range(5)
]
AIME = [{"id": number, "problem": f"How many, {number}?", "answer": str(number)} for number in range(30)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize(("name", "rows"), [("aime24", AIME), ("mmlu_pro", MMLU)])
def test_files_of_every_kind_give_the_same_questions(
    tmp_path: Path, suffix: str, name: str, rows: list[dict[str, Any]]
) -> None:
    write(tmp_path / f"{name}{suffix}", rows)
    write(tmp_path / "reference" / f"{name}.jsonl", rows)
    questions = load(name, tmp_path)
    assert questions == load(name, tmp_path / "reference")
    assert [question.id for question in questions] == [str(number) for number in range(len(rows))]


def test_a_limit_takes_always_the_same_and_nests(tmp_path: Path) -> None:
    write(tmp_path / "aime24.jsonl", AIME)
    seven, nine = load("aime24", tmp_path, limit=7), load("aime24", tmp_path, limit=9)
    assert (len(seven), len(nine)) == (7, 9)
    assert seven == load("aime24", tmp_path, limit=7)
    assert [question for question in nine if question in seven] == seven
    assert [question.id for question in seven] != [str(number) for number in range(7)]
    assert load("aime24", tmp_path, limit=100) == load("aime24", tmp_path)


def test_a_missing_file_says_what_to_put_where(tmp_path: Path) -> None:
    write(tmp_path / "aime24.jsonl", AIME)
    with pytest.raises(ValueError) as told:
        load("gpqa", tmp_path)
    assert "gpqa.jsonl" in str(told.value) and str(tmp_path) in str(told.value)


def test_the_hub_is_asked_for_what_the_catalog_says(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def hub(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        asked.append((args, kwargs))
        return [{"question": "Solve.", "final_answer": ["1"]}]

    monkeypatch.setattr(datasets, "load_dataset", hub)
    (question,) = load("olympiadbench")
    assert question.answer == "1"
    assert asked == [(("Hothan/OlympiadBench", "OE_TO_maths_en_COMP"), {"split": "train"})]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"problem": "a", "answer": "1"}\n{"problem": "b"', r"math500\.jsonl"),
        ('{"problem": "a", "answer": "1"}\n{"problem": "b"}\n', "row 1 .*answer"),
        (2 * '{"id": 1, "problem": "a", "answer": "1"}\n', "id '1'"),
    ],
)
def test_a_bad_file_says_where(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "math500.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        load("math500", tmp_path)
