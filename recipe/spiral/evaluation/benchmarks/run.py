"""Asks a model a benchmark's questions, several samples of each, and goes on where it was broken off.

Who serves the model is none of its business: it is given ``generate``. Answers are appended to a file as they come.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ...play.players.policy import Generate, PromptTooLong
from ...play.seeds import derive_seed
from ...storage.checksums import seal, unseal
from .catalog import SAMPLING
from .questions import Question


@dataclass(frozen=True)
class Reply:
    """What a model said.

    Attributes:
        text: without special tokens.
        tokens: how many they were; None: not known.
        truncated: whether the length limit ended it; None: not known.
    """

    text: str
    tokens: int | None = None
    truncated: bool | None = None


@dataclass(frozen=True)
class Sample:
    """A reply to a question: the ``number``-th of its samples, from 0. ``digest`` is the question's."""

    benchmark: str
    question: str
    number: int
    seed: int
    digest: str
    text: str
    tokens: int | None
    truncated: bool | None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.benchmark, self.question, self.number


#: Names that files of an earlier version have.
RENAMED = {"cut_off": "truncated"}
#: ``generate(prompt, sampling)``: a prompt is whatever ``prompt`` makes of a question; ``sampling`` holds a ``seed``.
Ask = Callable[[Any, Mapping[str, Any]], Awaitable["Reply | str"]]


def sample_seed(seed: int, question: Question, number: int) -> int:
    """The seed of a question's ``number``-th sample in a run of that seed."""
    return derive_seed("benchmark", seed, question.benchmark, question.id, number)


def engine(generate: Generate, decode: Callable[[list[int]], str], prompt_length: int | None = None) -> Ask:
    """An engine that takes and gives token ids, as the games' policies have one.

    Args:
        generate: the engine.
        decode: response ids -> text without special tokens.
        prompt_length: the longest prompt that is accepted, in tokens; one that is longer is refused, never cut.
    """

    async def ask(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Reply:
        if prompt_length is not None and len(prompt_ids) > prompt_length:
            raise PromptTooLong(f"{len(prompt_ids)} tokens are more than the {prompt_length} that prompts may have")
        generation = await generate(prompt_ids, sampling)
        return Reply(decode(generation.token_ids), len(generation.token_ids), generation.truncated)

    return ask


async def answer_all(
    questions: Sequence[Question],
    prompt: Callable[[str], Any],
    generate: Ask,
    samples: int,
    seed: int,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] = SAMPLING,
    concurrency: int = 256,
    seconds: float | None = 3600.0,
) -> list[Sample]:
    """Every question's samples, in the order of the questions.

    Args:
        questions: of any benchmarks.
        prompt: what a question's text becomes: ``Template.messages``, or its ``encode`` with a tokenizer.
        generate: the model.
        samples: how many of each question.
        seed: the run's; each sample's follows from it, the question and the sample's number alone.
        file: where answers are kept, as JSON lines; those that are there already are not asked for again.
        settings: what else answers depend on (model, template), to be kept in the file's first line.
        sampling: temperature and the like.
        concurrency: how many are under way at once.
        seconds: how long one may take.

    Raises:
        ValueError: the file's answers were made with other settings or to other questions; a number is not positive.
        TimeoutError: an answer took too long. Those that had come are in the file, as with ``generate``'s own errors.
    """
    if samples < 1 or concurrency < 1:
        raise ValueError(f"benchmarks: samples={samples}, concurrency={concurrency}: both must be at least 1")
    digests = {(question.benchmark, question.id): question.digest for question in questions}
    said = {"seed": seed, "sampling": dict(sampling), **(settings or {})}
    with _answers(file, said) as (kept, out):
        for sample in kept.values():
            if digests.get(sample.key[:2], sample.digest) != sample.digest:
                raise ValueError(
                    f"{file}: its answers are to another version of question {sample.question} of {sample.benchmark}; "
                    "take the old data, or another folder for the answers"
                )
        missing = (
            (question, number)
            for question in questions
            for number in range(samples)
            if (question.benchmark, question.id, number) not in kept
        )

        async def work() -> None:
            for question, number in missing:  # one iterator for all
                own = sample_seed(seed, question, number)
                try:
                    async with asyncio.timeout(seconds):
                        reply = await generate(prompt(question.prompt), {**sampling, "seed": own})
                except PromptTooLong as error:
                    raise PromptTooLong(f"{question.benchmark}, question {question.id}: {error}") from error
                except TimeoutError as error:
                    raise TimeoutError(
                        f"{question.benchmark}, question {question.id}, sample {number}: no answer within {seconds} s"
                    ) from error
                reply = Reply(reply) if isinstance(reply, str) else reply
                sample = Sample(question.benchmark, question.id, number, own, question.digest, **asdict(reply))
                kept[sample.key] = sample
                if out is not None:
                    _append(out, asdict(sample))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(questions) * samples)):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    wanted = ((question.benchmark, question.id, number) for question in questions for number in range(samples))
    return [kept[key] for key in wanted]


def read_samples(file: Path) -> tuple[dict[str, Any], list[Sample]]:
    """A file's settings and samples; a last line that was not written to its end does not count.

    Raises:
        ValueError: another line cannot be read.
    """
    lines = file.read_bytes().split(b"\n")[:-1]
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(unseal(line))
            rows.append(row["settings"] if number == 1 else row)
        except (ValueError, KeyError, TypeError) as error:
            mend = "remove the file, and all is" if number == 1 else "remove the line, and that answer is"
            raise ValueError(
                f"{file}, line {number}: is no answer to a benchmark ({error}); {mend} asked again"
            ) from error
    try:
        return (rows[0] if rows else {}), [
            Sample(**{RENAMED.get(name, name): value for name, value in row.items()}) for row in rows[1:]
        ]
    except TypeError as error:
        raise ValueError(
            f"{file}: holds answers of another form ({error}); remove it, or take another folder"
        ) from error


@contextmanager
def _answers(
    file: Path | None, settings: Mapping[str, Any]
) -> Iterator[tuple[dict[tuple[str, str, int], Sample], IO[str] | None]]:
    """The samples that a file holds, by their keys, and the file, to append to."""
    if file is None:
        yield {}, None
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{file}: another process is writing to it; wait, or take another folder") from error
        _cut_torn_line(file, out)
        before, samples = read_samples(file)
        ours = json.loads(json.dumps(settings))
        if file.stat().st_size == 0:
            _append(out, {"settings": ours})
        elif before != ours:
            changed = sorted(name for name in {*before, *ours} if before.get(name) != ours.get(name))
            shown = "; ".join(f"{name}: {before.get(name)!r} there, {ours.get(name)!r} now" for name in changed)
            raise ValueError(
                f"{file}: its answers were made with other settings ({shown}); take another folder, or remove the file"
            )
        yield {sample.key: sample for sample in samples}, out
        os.fsync(out.fileno())


def _append(out: IO[str], row: Mapping[str, Any]) -> None:
    try:
        line = seal(json.dumps(row, ensure_ascii=False).encode("utf-8"))
    except UnicodeEncodeError:  # half a surrogate pair, as other people's servers may send
        line = seal(json.dumps(row).encode("ascii"))
    out.write(line.decode("utf-8"))
    out.flush()


def _cut_torn_line(file: Path, out: IO[str]) -> None:
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        out.truncate(whole)
