"""Asking: which seeds, how many at once, what is stored, and how it is continued."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.benchmark_answers import Sample
from recipe.spiral.lab.evaluation.benchmark_asking import Answers, ask
from recipe.spiral.lab.evaluation.evaluation_folder import Lines
from recipe.spiral.lab.evaluation.policies import Policy
from recipe.spiral.lab.graders.question import Question
from recipe.spiral.players.player import Generation
from recipe.spiral.players.records import Tokens
from tests.lab.evaluation.made_policies import Characters, settings

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
    chosen = settings(folder, "seed=1", "concurrency=4", *overrides)
    folder.mkdir(exist_ok=True)
    answers = Answers(Lines(folder / "answers.jsonl"), policy, chosen)
    missing = answers.missing(questions, samples)
    asyncio.run(ask(policy, Characters(), model, missing, answers, chosen))
    return answers.of(questions, samples)


def test_every_sample_has_its_own_seed_and_the_papers_sampling(tmp_path: Path) -> None:
    model = Model()
    samples = answered(tmp_path, model)
    assert [sample.key for sample in samples] == [("aime24", str(q), number) for q in range(4) for number in range(3)]
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
