"""verl's rollout worker, which plays games in one agent loop for all; what they leave at one moment travels together.

verl's own puts each session of a row and its end into TransferQueue by themselves, with all columns of the dataset for
each turn. Here they go as the games' records do (``channel.send``), with the columns that are read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import hydra
import torch
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ
from verl.utils.rollout_trace import rollout_trace_attr

from ..processes.launch import collect_less
from . import channel, packed_storage  # noqa: F401  (registers it)
from .channel import Entry

logger = logging.getLogger(__name__)

#: The class under Ray's actor: Ray forbids to inherit from the actor class itself.
_VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class
#: The dataset's columns that verl's trainer reads of a turn's row.
COLUMNS = ("uid", "data_source")


class RolloutWorker(_VerlWorker):
    """Plays the games of its rows, all at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[str, AgentLoopBase] = {}
        collect_less()

    def use(self, client: Any) -> None:
        """The engine's client, which verl's own has from the start."""
        self.llm_client = client

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Run all sessions of a row, whose status is then "finished" or "failure"."""
        row, partition = dict(prompt), "val" if trajectory["validate"] else "train"
        name, sessions = row.pop("agent_name"), int(row.pop("__rollout_n__", 1))
        where = {name: trajectory[name] for name in ("step", "sample_index", "rollout_n", "validate")}

        async def run(session: int) -> None:
            with rollout_trace_attr(**where, name="agent_loop", trace=trace):
                output = await self._loop(name).run(dict(sampling_params), **row, session_id=session)
            turns = output if isinstance(output, list) else [output]
            await channel.send(
                self._entry(partition, f"{row['uid']}_{session}_{index}", turn, row) for index, turn in enumerate(turns)
            )

        outcomes = await asyncio.gather(*map(run, range(sessions)), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            logger.error("row %s failed", row["uid"], exc_info=failure)
        status = {"status": "failure" if failures else "finished"}
        try:
            await channel.send([Entry(partition, row["uid"], status)])
        except Exception:
            # The trainer would wait for the row for ever. That this process is gone, it sees.
            logger.exception("TransferQueue did not take the status of row %s", row["uid"])
            os._exit(1)

    def _loop(self, name: str) -> AgentLoopBase:
        """The agent loop of that name, which serves all rows: it knows nothing of a row by itself, and making one takes
        as long as several turns."""
        if name not in self._loops:
            self._loops[name] = hydra.utils.instantiate(
                agent_loop._agent_loop_registry[name],
                trainer_config=agent_loop.DictConfigWrap(self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=self.hf_model_type,
                dataset_cls=self.dataset_cls,
                data_config=agent_loop.DictConfigWrap(self.config.data),
                tools=agent_loop.ToolListWrap(self.tools),
            )
        return self._loops[name]

    def _entry(self, partition: str, key: str, turn: AgentLoopOutput, row: dict[str, Any]) -> Entry:
        """A turn with the fields and the tag that verl gives it."""
        fields = turn.as_dict()
        ids = torch.cat([fields["prompts"], fields["responses"]])
        positions = self._compute_position_ids(ids[None], torch.ones_like(ids)[None], {})[0]
        lengths = {"prompt_len": len(fields["prompts"]), "response_len": len(fields["responses"]), "seq_len": len(ids)}
        extra = fields["extra_fields"]
        versions = {name: extra.get(name) for name in ("min_global_steps", "max_global_steps")}
        return Entry(
            partition,
            key,
            {"status": "success", "global_steps": row["global_steps"], **lengths, **versions},
            {name: field for name, field in fields.items() if isinstance(field, torch.Tensor)}
            | {"input_ids": ids, "position_ids": positions, "loss_mask": fields["response_mask"]}
            | {"num_turns": fields["num_turns"], "extra_fields": extra}
            | {column: row[column] for column in COLUMNS if column in row},
        )
