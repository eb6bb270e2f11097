"""The agent loop for benchmarks' questions: one row is one answer of the policy.

Answers are not trained, and make no rows. They reach the trainer, which judges them, as games' records do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from ....players.prompts import general_template
from ....players.seeds import GameKey
from ....rollout import PolicyLoop
from ....rollouts import channel
from .answers import Reply, reply_to


class QuestionAgentLoop(PolicyLoop):
    """One row's answer."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Ask the row's question, and send the answer, or the error, to the trainer.

        Args:
            sampling_params: verl's, for the games of validation; the row's ``sampling`` wins.
            row: the dataset's columns.
        """
        key = GameKey(**dict(row["key"]))
        try:
            reply = await self._ask(row, sampling_params)
            await channel.put(key, channel.Report(answer=asdict(reply)))
        except Exception as error:
            await channel.put_failure(key, row["data_source"], error)
            raise
        return []

    async def _ask(self, row: Mapping[str, Any], sampling_params: Mapping[str, Any]) -> Reply:
        template = general_template(row["prompt"]["template"] or self.config.prompt.template)
        prompt_ids = template.encode(self.tokenizer, row["raw_prompt"], **self.apply_chat_template_kwargs)
        # Whatever the games' top_k is, answers are sampled from the whole distribution. Nobody reads log-probabilities.
        sampling = {**sampling_params, "top_k": -1, "logprobs": False, **dict(row["sampling"])}
        prompt_length = int(self.rollout_config.prompt_length)
        return await reply_to(prompt_ids, self._generate, self.tokenizer, sampling, prompt_length)
