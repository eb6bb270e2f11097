"""The reasoning benchmarks, asked of an evaluation's policies through the engine that plays its games."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...play.players.policy import Generate
from ...play.prompts import Template
from ..exploitability.table_store import file_name
from ..policies.policies import Policy
from ..settings import Benchmarks
from .data import load
from .grading import Grader
from .metrics import Score, grade, score
from .questions import Question
from .rows import general_template
from .run import Reply, Sample, answer_all, engine, read_samples
from .table import table


def questions(settings: Benchmarks) -> list[Question]:
    """All that are asked.

    Raises:
        NoData, ImportError, ValueError: there are none, or a package is missing, also the one that judges answers.
    """
    if settings.names and importlib.util.find_spec("math_verify") is None:
        raise ImportError("benchmarks.names: answers are judged by math-verify: pip install verl-spiral[math]")
    return [question for name in settings.names for question in load(name, settings.path, settings.limit)]


def template_for(policy: Policy, settings: Benchmarks) -> Template:
    """The benchmarks' own, or the policy's twin for questions."""
    if settings.template is not None:
        return general_template(settings.template)
    return general_template(policy.template)


def missing(policy: Policy, asked: Sequence[Question], settings: Benchmarks, folder: Path) -> int:
    """How many answers a policy has still to give.

    Raises:
        ValueError: the file of those that it gave cannot be read.
    """
    file = _file(policy, folder)
    before = {sample.key for sample in read_samples(file)[1]} if file.is_file() else set()
    wanted = ((one.benchmark, one.id, number) for one in asked for number in range(settings.samples))
    return sum(key not in before for key in wanted)


def _file(policy: Policy, folder: Path) -> Path:
    return folder / "benchmarks" / f"{file_name(policy.name)}.jsonl"


async def ask(
    policy: Policy,
    tokenizer: Any,
    generate: Generate | None,
    asked: Sequence[Question],
    settings: Benchmarks,
    folder: Path,
    seed: int,
    concurrency: int,
    seconds: float,
    chat_template_kwargs: Mapping[str, Any],
) -> list[Sample]:
    """A policy's answers, those that it gave before included; kept in ``benchmarks/`` of the evaluation's folder.

    Args:
        generate: its engine; None where no answer is missing.
    """
    template = template_for(policy, settings)

    def prompt(text: str) -> list[int]:
        return template.encode(tokenizer, text, **chat_template_kwargs)

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    answer = None if generate is None else engine(generate, decode, settings.max_prompt_length)
    total = len(asked) * settings.samples
    there = total - missing(policy, asked, settings, folder)
    with tqdm(total=total, initial=there, desc=f"benchmarks, {policy.name}", unit="answer") as bar:

        async def counted(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Reply | str:
            assert answer is not None, "no answer was missing"
            reply = await answer(prompt_ids, sampling)
            bar.update()
            return reply

        return await answer_all(
            asked,
            prompt,
            counted,
            settings.samples,
            seed,
            _file(policy, folder),
            {"policy": dict(policy.identity), "template": template.name},
            {**settings.sampling, "max_tokens": settings.max_response_length},
            concurrency,
            seconds,
        )


def judged(asked: Sequence[Question], samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Score]]:
    """Every policy's scores, by benchmark.

    Raises:
        ImportError: math-verify is not installed.
    """
    with Grader() as grader:
        return {
            name: [
                score(benchmark, graded, grader.compare)
                for benchmark in dict.fromkeys(question.benchmark for question in asked)
            ]
            for name, said in samples.items()
            for graded in [grade(asked, said, grader)]
        }


def tables(scores: Mapping[str, Sequence[Score]], paper_model: str | None) -> list[str]:
    """For people, with the paper's numbers."""
    return [f"Benchmarks: {name}\n\n{table(found, paper_model)}" for name, found in scores.items()]
