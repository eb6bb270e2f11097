"""Benchmarks: questions from files of every kind; which seeds, how many at once, what is stored; and the figures."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.benchmark_questions import load
from recipe.spiral.lab.evaluation.benchmarks import Answers, Graded, Sample, majority, pass_at, score
from recipe.spiral.lab.evaluation.evaluation_folder import Lines
from recipe.spiral.lab.evaluation.policies import Policy
from recipe.spiral.lab.graders.grading import Verdict
from recipe.spiral.lab.graders.question import Question
from recipe.spiral.players.player import Generation
from recipe.spiral.players.records import Tokens
from tests.lab.evaluation.made import Characters, settings

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


# -- asking

QUESTIONS = [Question("aime24", str(number), f"How many, {number}?", "7") for number in range(4)]
MINE = Policy("mine", "model", {"path": "m"}, Path("m"))


class Model:
    """Answers with its seed; notes how many were under way at once."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.under_way = self.most = 0
        self.fail_after = fail_after

    async def __call__(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        if self.fail_after is not None and len(self.asked) >= self.fail_after:
            raise ConnectionError("the server is gone")
        self.asked.append(sampling)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return Generation(Tokens(prompt_ids, [*map(ord, f"{sampling['seed']} \\boxed{{7}}"), 0], None, None), False)


def answered(
    folder: Path, model: Any, *overrides: str, samples: int = 3, questions: Any = QUESTIONS, policy: Policy = MINE
) -> list[Sample]:
    chosen = settings(folder, "seed=1", "concurrency=4", f"benchmarks.samples={samples}", *overrides)
    folder.mkdir(exist_ok=True)
    answers = Answers(Lines(folder / "answers.jsonl"), policy, chosen)
    wanted = [(question, number) for question in questions for number in range(samples)]
    seating: Any = SimpleNamespace(tokenizer=lambda policy: Characters(), generate_as=lambda policy: model)
    asyncio.run(answers.ask(questions, seating))
    return [sample for each in wanted if (sample := answers.of(*each)) is not None]


def test_every_sample_has_its_own_seed_and_the_papers_sampling(tmp_path: Path) -> None:
    model = Model()
    samples = answered(tmp_path, model)
    assert [(sample.question, sample.number) for sample in samples] == [(str(q), k) for q in range(4) for k in range(3)]
    assert len({sample.seed for sample in samples}) == 12
    assert samples[0].text == f"{samples[0].seed} \\boxed{{7}}" and samples[0].tokens == len(samples[0].text) + 1
    assert all((sampling["temperature"], sampling["top_p"]) == (0.6, 0.95) for sampling in model.asked)
    assert model.most == 4
    alone = answered(tmp_path / "alone", Model(), "concurrency=1", samples=1, questions=QUESTIONS[2:3])
    assert alone == [samples[6]]
    other = answered(tmp_path / "other", Model(), "seed=2")
    assert {sample.seed for sample in other}.isdisjoint(sample.seed for sample in samples)


def test_it_continues_where_it_was_broken_off(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="server is gone"):
        answered(tmp_path, Model(fail_after=6))
    model = Model()
    samples = answered(tmp_path, model)
    assert 12 - 6 <= len(model.asked) < 12
    assert samples == answered(tmp_path / "at once", Model())
    again = Model()
    assert answered(tmp_path, again) == samples and again.asked == []
    more = Model()
    assert len(answered(tmp_path, more, samples=4)) == 16 and len(more.asked) == 4


def test_answers_of_another_kind_are_not_counted(tmp_path: Path) -> None:
    first = answered(tmp_path, Model())
    changed = [Question("aime24", "0", "How few?", "7")]
    answered(tmp_path, model := Model(), questions=changed)
    assert len(model.asked) == 3
    other = replace(MINE, identity={"path": "n"})
    answered(tmp_path, model := Model(), "benchmarks.sampling.temperature=1", policy=other)
    assert len(model.asked) == 12
    assert answered(tmp_path, model := Model()) == first and model.asked == []


# -- figures

RIGHT = Verdict("right", "7")
NONE = Verdict("no answer")
LATE = Verdict("time-out", "9^9")


def wrong(answer: str) -> Verdict:
    return Verdict("wrong", answer)


def graded(verdicts: Sequence[Sequence[Verdict]]) -> list[list[Graded]]:
    return [
        [
            (Sample("aime24", str(question), number, 0, "", "text", 10 * (number + 1), number % 2 == 1), verdict)
            for number, verdict in enumerate(group)
        ]
        for question, group in enumerate(verdicts)
    ]


def same_text(one: str, other: str) -> str:
    return "right" if one == other else "wrong"


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(right: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(right)))
    draws = [any(draw) for draw in combinations(right, k)]
    assert pass_at(len(right), sum(right), k) == pytest.approx(sum(draws) / len(draws))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([RIGHT, wrong("1"), RIGHT], True),
        ([wrong("1"), RIGHT, wrong("1")], False),
        ([wrong("1/2"), wrong("0.5"), RIGHT], False),  # one answer, written in two ways
        ([wrong("1"), RIGHT], False),  # a tie goes to the first
        ([NONE, NONE, RIGHT], True),  # who says nothing has no vote
        ([LATE, LATE, RIGHT], True),
        ([NONE, LATE], False),
    ],
)
def test_majority(verdicts: list[Verdict], expected: bool) -> None:
    assert majority(verdicts, lambda one, other: {one, other} == {"1/2", "0.5"}) is expected


def test_a_score_with_all_its_counts() -> None:
    verdicts = [[RIGHT, RIGHT, wrong("1"), NONE], [wrong("1"), wrong("1"), RIGHT, LATE]]
    made = score("aime24", graded(verdicts), same_text)
    shares = {
        name: (each["value"], each["count"]) for name, each in made.items() if isinstance(each, dict) and 1 not in each
    }
    assert (made["questions"], made["samples"]) == (2, 4)
    assert shares == {
        "avg": (3 / 8, 2),
        "maj": (1 / 2, 2),
        "truncated": (1 / 2, 8),
        "no_answer": (1 / 8, 8),
        "unreadable": (0, 8),
        "time_outs": (1 / 8, 8),
        "crashes": (0, 8),
        "comparisons_failed": (0, 0),
        "tokens": (25, 8),
    }
    assert {k: each["value"] for k, each in made["pass_at"].items()} == {
        1: 3 / 8,
        2: pytest.approx((5 / 6 + 1 / 2) / 2),
        4: 1.0,
    }


def test_the_interval_is_over_questions_not_samples() -> None:
    def limits(verdicts: Sequence[Sequence[Verdict]]) -> tuple[float, float]:
        avg = score("aime24", graded(verdicts), same_text)["avg"]
        return avg["low"], avg["high"]

    # Ten questions, of which each is always right or always wrong: many samples tell no more than one.
    few = limits([[RIGHT]] * 5 + [[wrong("1")]] * 5)
    many = limits([[RIGHT] * 16] * 5 + [[wrong("1")] * 16] * 5)
    assert many[1] - many[0] == pytest.approx(few[1] - few[0])
    # Where each is right half the time, they do.
    assert limits([[RIGHT] * 8 + [wrong("1")] * 8] * 10)[0] > many[0]
    low, high = limits([[wrong("1")] * 16] * 10)
    assert low == 0 and 0.2 < high < 0.35
