"""Asking: which seeds, how many at once, what is kept, and how it goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.evaluation.benchmarks.questions import Question
from recipe.spiral.evaluation.benchmarks.run import Reply, Sample, answer_all, engine, read_samples
from recipe.spiral.play.players.policy import Generation, PromptTooLong

QUESTIONS = [Question("aime24", str(number), "math", f"How many, {number}?", "7") for number in range(4)]


class Model:
    """Answers with its prompt and seed; notes how many were under way at once."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.under_way = self.most = 0
        self.fail_after = fail_after

    async def __call__(self, prompt: str, sampling: Mapping[str, Any]) -> Reply:
        if self.fail_after is not None and len(self.asked) >= self.fail_after:
            raise ConnectionError("the server is gone")
        self.asked.append((prompt, sampling))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return Reply(f"{prompt} {sampling['seed']} \\boxed{{7}}", 5, False)


def ask(model: Any, file: Path | None = None, **settings: Any) -> list[Sample]:
    values: dict[str, Any] = {"samples": 3, "seed": 1, "concurrency": 4, "settings": {"model": "m"}, **settings}
    return asyncio.run(answer_all(values.pop("questions", QUESTIONS), str, model, file=file, **values))


def test_every_sample_has_its_own_seed_and_the_papers_sampling() -> None:
    model = Model()
    samples = ask(model)
    assert [sample.key for sample in samples] == [("aime24", str(q), number) for q in range(4) for number in range(3)]
    assert len({sample.seed for sample in samples}) == 12
    assert all((sampling["temperature"], sampling["top_p"]) == (0.6, 0.95) for _, sampling in model.asked)
    assert model.most == 4
    alone = ask(Model(), questions=QUESTIONS[2:3], samples=1, concurrency=1)
    assert alone == [samples[6]]
    assert {sample.seed for sample in ask(Model(), seed=2)}.isdisjoint(sample.seed for sample in samples)


def test_it_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "answers.jsonl"
    with pytest.raises(ConnectionError, match="server is gone"):
        ask(Model(fail_after=6), file)
    before = len(read_samples(file)[1])
    assert 0 < before <= 6
    with file.open("a") as out:
        out.write('{"benchmark": "aime24", "quest')  # killed while writing
    model = Model()
    samples = ask(model, file)
    assert len(model.asked) == 12 - before
    assert samples == ask(Model())
    assert all(json.loads(line) for line in file.read_text().splitlines())
    again = Model()
    assert ask(again, file) == samples and again.asked == []
    more = Model()
    assert len(ask(more, file, samples=4)) == 16 and len(more.asked) == 4


def test_a_torn_first_line_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"settings": {"mod')
    assert len(ask(Model(), file)) == 12
    assert read_samples(file)[0]["model"] == "m"


def test_answers_of_another_kind_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    ask(Model(), file)
    with pytest.raises(ValueError, match=r"other settings \(model: 'm' there, 'n' now; seed: 1 there, 2 now\)"):
        ask(Model(), file, settings={"model": "n"}, seed=2)
    changed = [Question("aime24", "0", "math", "How few?", "7")]
    with pytest.raises(ValueError, match="another version of question 0"):
        ask(Model(), file, questions=changed)
    (tmp_path / "else.jsonl").write_text("hello\nworld\n")
    with pytest.raises(ValueError, match=r"else.jsonl, line 1: is no answer"):
        ask(Model(), tmp_path / "else.jsonl")


def test_an_answer_that_was_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    ask(Model(), file)
    lines = file.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("boxed{", "boxed{1", 1)
    file.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"line 3: is no answer .*it was changed.*remove the line"):
        ask(Model(), file)
    file.write_text("".join([*lines[:2], *lines[3:]]))
    model = Model()
    assert len(ask(model, file)) == 12 and len(model.asked) == 1


def test_two_runs_do_not_write_into_one_file(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"

    async def meddling(prompt: str, sampling: Mapping[str, Any]) -> str:
        await answer_all(QUESTIONS, str, Model(), samples=3, seed=1, file=file)
        return ""

    with pytest.raises(ValueError, match="another process"):
        ask(meddling, file)


def test_a_text_alone_is_a_reply() -> None:
    async def model(prompt: str, sampling: Mapping[str, Any]) -> str:
        return "\\boxed{7}"

    (sample,) = ask(model, questions=QUESTIONS[:1], samples=1)
    assert (sample.text, sample.tokens, sample.truncated) == ("\\boxed{7}", None, None)


def test_no_answer_is_waited_for_without_end() -> None:
    async def model(prompt: str, sampling: Mapping[str, Any]) -> str:
        await asyncio.sleep(1000)
        return ""

    with pytest.raises(TimeoutError, match=r"aime24, question \d, sample \d"):
        ask(model, seconds=0.01)


def test_an_engine_of_token_ids() -> None:
    async def generate(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        return Generation(prompt_ids[::-1], None, True, None)

    def decode(ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def encode(text: str) -> list[int]:
        return list(map(ord, text))

    one = QUESTIONS[:1]
    (sample,) = asyncio.run(answer_all(one, encode, engine(generate, decode, 100), samples=1, seed=0))
    assert (sample.text, sample.tokens, sample.truncated) == ("?0 ,ynam woH", 12, True)
    with pytest.raises(PromptTooLong, match="question 0: 12 tokens are more than the 5"):
        asyncio.run(answer_all(one, encode, engine(generate, decode, 5), samples=1, seed=0))
