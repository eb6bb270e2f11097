"""The agent loop for questions that are trained: a session is one response.

A response is graded here, and becomes the record of a game of one turn: its player is the policy, and the other one is
the grader. So records, metrics, pairs and baselines are those of games, and a win is a right answer. A response that
could not be graded is a void game.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from ..players.prompts import general_template
from ..players.records import GameRecord, Tokens, Turn
from ..players.seeds import GameKey
from ..rollout import PolicyLoop, turns_to_rows
from ..rollouts import channel
from .response_scores import Score, scorer
from .training_questions import GRADER, TrainingQuestion


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
            return GameRecord(
                key,
                question.data_set,
                ("policy", GRADER),
                (0,),
                opponent=GRADER,
                discarded="void",
                reason=f"question {question.id}: {problem}",
            )
        tokens, truncated = await self._generate(prompt_ids, {**sampling, "seed": key.seed("sampling", 0, 0)})
        text = self._decode(tokens.response_ids)
        settings = self.config.questions
        judge = scorer(str(settings.grader), float(settings.seconds))
        score = await asyncio.to_thread(judge.score, question, text)
        return answer_record(key, question, text, tokens, truncated, score)


def answer_record(
    key: GameKey, question: TrainingQuestion, text: str, tokens: Tokens, truncated: bool, score: Score
) -> GameRecord:
    """A graded response as a game that the policy wins with a score above 1/2; void if it could not be graded."""
    verdict = "truncated" if truncated and score.verdict == "no_answer" else score.verdict
    turn = Turn(0, 0, question.text, text, verdict, score.answer, tokens, truncated)
    record = GameRecord(key, question.data_set, ("policy", GRADER), (0,), [turn], opponent=GRADER)
    if score.value is None:
        return replace(record, discarded="void", reason=f"question {question.id}: {score.problem}")
    return replace(record, rewards=(score.value, 1.0 - score.value))
