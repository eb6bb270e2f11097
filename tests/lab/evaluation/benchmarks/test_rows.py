"""Questions as rows of a validation set: one row an answer, with the columns of the games beside it."""

from __future__ import annotations

import subprocess
import sys

from recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks import Entry, ValidationBenchmarks
from recipe.spiral.lab.graders.question import Question
from recipe.spiral.players.seats import Seat
from recipe.spiral.players.seeds import GameKey, derive_seed
from recipe.spiral.rollouts.schedule import GameShare, training_row, validation_rows

MATH = Question("math500", "a", "math", "Half of one?", "\\frac{1}{2}")
CHOICE = Question("gpqa", "b", "choice", "Which?", "B", ("red", "green"))
ENTRY = Entry(id="math500", max_tokens=7, template="qwen3")
ASKING = ValidationBenchmarks([], 5)
ASKING.asked = [(ENTRY, MATH, 0), (ENTRY, MATH, 1), (Entry(id="gpqa"), CHOICE, 0)]
SEEDS = [derive_seed("benchmark", 5, question.benchmark, question.id, number) for _, question, number in ASKING.asked]
GAMES = validation_rows([("random", [GameShare("Nim")])], 5, 2)


def test_a_row_is_an_answer_with_its_own_sampling() -> None:
    rows = ASKING.rows(GAMES)[len(GAMES) :]
    assert [row["sampling"] for row in rows] == [
        {"seed": SEEDS[0], "temperature": 0.6, "top_p": 0.95, "max_tokens": 7},
        {"seed": SEEDS[1], "temperature": 0.6, "top_p": 0.95, "max_tokens": 7},
        {"seed": SEEDS[2], "temperature": 0.6, "top_p": 0.95, "max_tokens": None},
    ]
    assert [row["data_source"] for row in rows] == ["benchmark/math500"] * 2 + ["benchmark/gpqa"]
    assert [row["prompt"]["template"] for row in rows] == ["qwen3", "qwen3", ""]
    assert {row["agent_name"] for row in rows} == {"spiral_question"}
    assert {row["__rollout_n__"] for row in rows} == {1}
    assert rows[0]["raw_prompt"] == "Half of one?"
    assert "(A) red\n(B) green" in rows[2]["raw_prompt"]


def test_a_row_is_launched_under_a_key_that_is_no_games() -> None:
    rows = ASKING.rows(GAMES)
    keys = [GameKey(**row["key"]) for row in rows]
    assert [(key.split, key.index) for key in keys] == [("val", i) for i in range(4)] + [
        ("question", i) for i in range(3)
    ]
    assert len({str(key) for key in keys}) == 7
    assert [row["index"] for row in rows] == list(range(7))


def test_beside_games_all_have_the_same_columns_of_the_same_kinds() -> None:
    rows = ASKING.rows(GAMES)
    assert len({tuple(sorted(row)) for row in rows}) == 1
    for column in rows[0]:
        assert len({type(row[column]) for row in rows}) == 1, column
    assert set(training_row([GameShare("Nim")], 5, 8, 0)) == set(rows[0]) - {"sampling"}
    for row in rows:
        Seat.from_row(row)


def test_games_are_sampled_as_verl_says() -> None:
    rows = ValidationBenchmarks([], 5).rows(GAMES)
    assert [{name: value for name, value in row.items() if name != "sampling"} for row in rows] == GAMES
    assert {value for row in rows for value in row["sampling"].values()} == {None}


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, recipe.spiral.lab.evaluation.benchmarks as b, "
        "recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks, "
        "recipe.spiral.lab.evaluation.benchmarks.answers, "
        "recipe.spiral.lab.evaluation.benchmarks.benchmark_metrics\n"
        "heavy = {'verl', 'ray', 'vllm', 'torch', 'datasets', 'math_verify', 'sympy', 'transformers'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
