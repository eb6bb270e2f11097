"""The agent loop for questions that are trained, and the scores of its answers: a session is one response.

A response is graded here, and becomes the record of a game of one turn: its player is the policy, and the other one is
the grader. So records, metrics, pairs and baselines are those of games, and a win is a right answer. A response that
could not be graded is a void game: it is judged in a process of its own, so that one, or a function, that hangs,
crashes or returns nonsense costs its own answer, and its name is counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from ..lab.graders.grading import Grader
from ..lab.graders.judge import CRASH, TIME_OUT, Judge, NotStarted
from ..players.prompts import general_template, last_box
from ..players.records import GameRecord, Tokens, Turn, Verdict
from ..players.seeds import GameKey
from ..rollout import PolicyLoop, turns_to_rows
from ..rollouts import channel
from .spin_settings import BOXED
from .training_questions import GRADER, TrainingQuestion

_VERDICTS: dict[str, Verdict] = {"no answer": "no_answer", "unreadable": "unreadable", TIME_OUT: "unreadable"}


class AnswerLoop(PolicyLoop):
    """One response to a question."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Answer the row's question, and send the record, or the error, to the trainer.

        Args:
            sampling_params: verl's, for training or for validation.
            row: the dataset's columns, and ``session_id``.
        """
        first = GameKey(**dict(row["key"]))
        key = replace(first, index=first.index + int(row["session_id"]))
        question = TrainingQuestion.from_json(row["raw_prompt"])
        try:
            record = await self._answer(key, question, sampling_params)
            await channel.put(key, channel.Report([record]))
        except Exception as error:
            await channel.put_failure(key, question.data_set, error)
            raise
        return turns_to_rows(record, 0) if record.discarded is None else []

    async def _answer(self, key: GameKey, question: TrainingQuestion, sampling: Mapping[str, Any]) -> GameRecord:
        template = general_template(self.config.prompt.template)
        prompt_ids = question.encode(self.tokenizer, template, **self.apply_chat_template_kwargs)
        if len(prompt_ids) > (limit := int(self.rollout_config.prompt_length)):
            problem = f"{len(prompt_ids)} tokens, more than data.max_prompt_length={limit}"
            return _record(key, question, [], problem)
        tokens, truncated = await self._generate(prompt_ids, {**sampling, "seed": key.seed("sampling", 0, 0)})
        text = self._decode(tokens.response_ids)
        settings = self.config.questions
        score_of = scorer(str(settings.grader), float(settings.seconds))
        score = await asyncio.to_thread(score_of, question, text)
        return answer_record(key, question, text, tokens, truncated, score)


@dataclass(frozen=True)
class Score:
    """What a response is worth.

    Attributes:
        value: 1 is right and 0 is wrong, where a function says nothing else; None: it could not be graded.
        verdict: on the answer's form.
        answer: what was graded, if it was found.
        problem: why it could not be graded: "time-out", "crash", "raised: ...", "not a number: ...".
    """

    value: float | None
    verdict: Verdict = "legal"
    answer: str | None = None
    problem: str | None = None


def answer_record(
    key: GameKey, question: TrainingQuestion, text: str, tokens: Tokens, truncated: bool, score: Score
) -> GameRecord:
    """A graded response as a game that the policy wins with a score above 1/2; void if it could not be graded."""
    verdict = "truncated" if truncated and score.verdict == "no_answer" else score.verdict
    turn = Turn(0, 0, question.text, text, verdict, score.answer, tokens, truncated)
    if score.value is None:
        return _record(key, question, [turn], str(score.problem))
    return replace(_record(key, question, [turn]), rewards=(score.value, 1.0 - score.value))


def _record(key: GameKey, question: TrainingQuestion, turns: list[Turn], problem: str | None = None) -> GameRecord:
    record = GameRecord(key, question.data_set, ("policy", GRADER), (0,), turns, opponent=GRADER)
    return replace(record, discarded="void", reason=f"question {question.id}: {problem}") if problem else record


@cache
def scorer(grader: str, seconds: float) -> Callable[[TrainingQuestion, str], Score]:
    """What scores responses in this process, by the config's ``questions``. Any number of threads may ask it."""
    if grader == BOXED:
        return partial(by_box, Grader(seconds))
    return partial(by_function, Judge(grader, seconds))


def by_box(grader: Grader, question: TrainingQuestion, response: str) -> Score:
    """The content of the last box is compared with the right answer, as for benchmarks.

    An answer that uses up its time is wrong: were it left out, it would pay to give such ones.
    """
    verdict = grader.grade(question.question, response)
    if verdict.reason == CRASH:
        return Score(None, answer=verdict.answer, problem=verdict.reason)
    return Score(float(verdict.correct), _VERDICTS.get(verdict.reason, "legal"), verdict.answer)


def by_function(judge: Judge, question: TrainingQuestion, response: str) -> Score:
    """A function with the signature of verl's ``compute_score`` is asked: it gets ``data_source``, ``solution_str``,
    ``ground_truth`` and ``extra_info`` by name, and returns a number, or a dict with one under "score"."""
    answer, parts = last_box(response), ("data_source", "ground_truth", "extra_info")
    asked = {"solution_str": response, **{part: getattr(question, part) for part in parts}}
    try:
        value, problem = judge.ask(**asked)
    except NotStarted as error:
        value, problem = None, f"{CRASH}: {error}"
    if problem is None and (not isinstance(value, int | float) or not math.isfinite(value)):
        problem = f"not a number: {value!r}"[:100]
    return Score(None if problem else float(value), answer=answer, problem=problem)
