"""verl's rollout worker, which plays games in many agent loops at once; what they leave travels together.

verl's own puts the status of a row, each of its sessions and its end into TransferQueue by themselves, with all columns
of the dataset for each turn. Here they go as the games' records do (``channel.send``), with the columns that are read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from itertools import accumulate, pairwise
from typing import Any

import hydra
import ray
import torch
from tensordict import TensorDict
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ
from verl.utils.rollout_trace import rollout_trace_attr
from verl.utils.tensordict_utils import index_select_tensor_dict

from ..processes.garbage import collect_less
from ..rollout import GameManager, PolicyLoop
from ..rollouts import channel
from ..rollouts.channel import Entry
from . import packed_storage  # noqa: F401  (registers it)

logger = logging.getLogger(__name__)

#: The class under Ray's actor: Ray forbids to inherit from the actor class itself.
_VerlWorker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class
#: The dataset's columns that verl's trainer reads of a turn's row.
COLUMNS = ("uid", "data_source")
#: Seconds before a status that TransferQueue did not take is put again.
RETRY_AFTER = (1.0, 5.0, 20.0)


class RolloutWorker(_VerlWorker):
    """Plays the games of its rows, all at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[str, PolicyLoop] = {}
        collect_less()

    async def games_under_way(self) -> int:
        """How many games are being played here."""
        return len(self.background_tasks)

    async def until_over(self) -> None:
        """Return when no game is being played here, and all that they left is handed over."""
        while self.background_tasks:
            await asyncio.wait(self.background_tasks)

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Run all sessions of a row. Its status is "running", and "finished" or "failure" when all have ended."""
        row = dict(prompt)
        partition, uid = _partition(trajectory["validate"]), row["uid"]
        sessions = int(row.pop("__rollout_n__", 1))
        await _put_status(partition, uid, "running")
        runs = [
            self._run_agent_loop(dict(sampling_params), trajectory=trajectory, trace=trace, session_id=session, **row)
            for session in range(sessions)
        ]
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            logger.error("row %s failed", uid, exc_info=failure)
        await _put_status(partition, uid, "failure" if failures else "finished")

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **row: Any,
    ) -> None:
        """Run a session of a row, by an agent loop that serves all rows.

        It knows nothing of a row by itself, and making one takes as long as several turns.
        """
        if agent_name not in self._loops:
            self._loops[agent_name] = hydra.utils.instantiate(
                agent_loop._agent_loop_registry[agent_name],
                trainer_config=agent_loop.DictConfigWrap(self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=self.hf_model_type,
                dataset_cls=self.dataset_cls,
                data_config=agent_loop.DictConfigWrap(self.config.data),
                tools=agent_loop.ToolListWrap(self.tools),
            )
        where = {name: trajectory[name] for name in ("step", "sample_index", "rollout_n", "validate")}
        with rollout_trace_attr(**where, name="agent_loop", trace=trace):
            output = await self._loops[agent_name].run(sampling_params, **row)
            await self._agent_loop_postprocess(output, trajectory["validate"], **row)

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        """Hand over a session's turns, one row a turn; ``kwargs`` are the dataset's columns, and ``session_id``."""
        turns = output if isinstance(output, list) else [output]
        name = f"{kwargs['uid']}_{kwargs['session_id']}"
        columns = {column: kwargs[column] for column in COLUMNS if column in kwargs}
        await channel.send(
            self._entry(_partition(validate), f"{name}_{index}", turn, columns, kwargs["global_steps"])
            for index, turn in enumerate(turns)
        )

    def _entry(
        self, partition: str, key: str, turn: AgentLoopOutput, columns: dict[str, Any], global_steps: int
    ) -> Entry:
        fields = turn.as_dict()
        ids = torch.cat([fields["prompts"], fields["responses"]])
        positions = self._compute_position_ids(ids[None], torch.ones_like(ids)[None], {})[0]
        kept = {name: field for name, field in fields.items() if isinstance(field, torch.Tensor)}
        lengths = {"prompt_len": len(fields["prompts"]), "response_len": len(fields["responses"]), "seq_len": len(ids)}
        extra = fields["extra_fields"]
        versions = {name: extra.get(name) for name in ("min_global_steps", "max_global_steps")}
        return Entry(
            partition,
            key,
            {"status": "success", "global_steps": global_steps, **lengths, **versions},
            kept
            | {"input_ids": ids, "position_ids": positions, "loss_mask": fields["response_mask"]}
            | {"num_turns": fields["num_turns"], "extra_fields": extra}
            | columns,
        )


class RolloutManager(GameManager):
    """With these workers, in processes of their own or in those of the policy's servers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RolloutWorker)
        #: Calls that return when a worker's games are over.
        self._over: list[Any] = []

    async def _init_agent_loop_workers(self) -> None:
        if int(self.rollout_config.agent.num_workers):
            return await super()._init_agent_loop_workers()
        self.agent_loop_workers = servers = self.llm_client.servers
        given = (self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles)
        await asyncio.gather(*(server.take_part.remote(*given) for server in servers))

    def play(self, prompts: TensorDict) -> None:
        """Have the games of a batch played, each where the fewest are, and return when they have begun."""
        workers = self.agent_loop_workers
        if len(workers) == 1:
            parts = [(workers[0], prompts)]
        else:
            there = ray.get([worker.games_under_way.remote() for worker in workers])
            wanted = [*there]
            for _ in range(len(prompts)):  # each to the one that has the fewest: a step ends with its last game
                wanted[wanted.index(min(wanted))] += 1
            begins = [0, *accumulate(count - before for count, before in zip(wanted, there, strict=True))]
            chosen = [(worker, [*range(*ends)]) for worker, ends in zip(workers, pairwise(begins), strict=True)]
            parts = [(worker, index_select_tensor_dict(prompts, rows)) for worker, rows in chosen if rows]
        ray.get([worker.generate_sequences.remote(part) for worker, part in parts])

    def wait_until_over(self, seconds: float) -> None:
        """Return when no game is being played, or after so many seconds. A worker that died plays none."""
        if not self._over:
            self._over = [worker.until_over.remote() for worker in self.agent_loop_workers]
        _, self._over = ray.wait(self._over, num_returns=len(self._over), timeout=seconds)


async def _put_status(partition: str, uid: str, status: str) -> None:
    """Put a row's status. The trainer would wait for a row without one for ever: where TransferQueue does not take it,
    this process ends, which the watchdog sees."""
    for seconds in (0.0, *RETRY_AFTER):
        await asyncio.sleep(seconds)
        try:
            return await channel.send([Entry(partition, uid, {"status": status})])
        except Exception as error:
            refused = error
    logger.error("TransferQueue did not take the status %r of row %s", status, uid, exc_info=refused)
    os._exit(1)


def _partition(validate: bool) -> str:
    return "val" if validate else "train"
