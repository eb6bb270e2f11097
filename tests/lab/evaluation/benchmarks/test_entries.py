"""Which questions validation asks: entries are read and refused by name, seeds are those of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks import (
    Entry,
    ValidationBenchmarks,
    general_template,
    parse_entries,
    questions_of,
)
from recipe.spiral.players.seeds import derive_seed


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"id": f"q{number}", "problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(5)]
    (tmp_path / "math500.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_an_entry_may_be_an_id() -> None:
    assert parse_entries(["MATH500", {"id": "gpqa", "samples": 4, "temperature": 1}]) == [
        Entry(id="math500", path=None, limit=None, samples=1, template=None, temperature=0.6, top_p=0.95),
        Entry(id="gpqa", samples=4, temperature=1),
    ]
    assert parse_entries([]) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([3], r"^validation\.benchmarks\.0=3: must be a valid dictionary"),
        ([{"path": "x"}], r"^validation\.benchmarks\.0\.id: must be given"),
        (["math"], r"'math' is unknown; known are math500"),
        (
            [{"id": "math500", "sample": 4}],
            r"^validation\.benchmarks\.0\.sample: there is no such setting; known: id, path, limit",
        ),
        (["math500", {"id": "MATH-500"}], r"math500 is there twice; use samples for more answers"),
        (
            [{"id": "math500", "samples": 0}],
            r"^validation\.benchmarks\.0\.samples=0: must be greater than or equal",
        ),
        ([{"id": "math500", "samples": None}], r"benchmarks\.0\.samples=None: must be a valid integer"),
        ([{"id": "math500", "limit": 0}], r"benchmarks\.0\.limit=0: must be greater than or equal to 1"),
        ([{"id": "math500", "limit": 1.5}], r"benchmarks\.0\.limit=1\.5: must be a valid integer"),
        ([{"id": "math500", "max_tokens": True}], r"benchmarks\.0\.max_tokens=True: must be a valid integer"),
        ([{"id": "math500", "temperature": -1}], r"benchmarks\.0\.temperature=-1: must be greater than or equal to 0"),
        ([{"id": "math500", "temperature": "warm"}], r"benchmarks\.0\.temperature='warm': must be a valid number"),
        ([{"id": "math500", "top_p": 0}], r"benchmarks\.0\.top_p=0: must be greater than 0"),
        ([{"id": "math500", "template": "qwen"}], r"known templates"),
    ],
)
def test_a_bad_entry_is_named(entries: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_entries(entries)


def test_every_sample_is_asked_for_with_the_seed_that_an_evaluation_gives_it(data: Path) -> None:
    asking = ValidationBenchmarks([{"id": "math500", "path": str(data), "samples": 2}], 5)
    assert [(question.id, number) for _, question, number in asking.asked] == [
        (f"q{q}", n) for q in range(5) for n in (0, 1)
    ]
    seeds = [row["sampling"]["seed"] for row in asking.rows([])]
    assert seeds == [derive_seed("benchmark", 5, "math500", f"q{q}", n) for q in range(5) for n in (0, 1)]
    assert len(set(seeds)) == 10


def test_a_limit_takes_so_many(data: Path) -> None:
    questions = questions_of(Entry(id="math500", path=str(data), limit=2))
    assert len({question.id for question in questions}) == len(questions) == 2


def test_data_that_is_not_there_is_named_by_the_runs_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^validation\.benchmarks: gpqa: path=.*: no data of gpqa in there.*Put gpqa"):
        questions_of(Entry(id="gpqa", path=str(tmp_path)))


def test_a_templates_twin_is_for_questions() -> None:
    assert general_template("qwen3") == general_template("qwen3_general")
    assert general_template("r1").plain
