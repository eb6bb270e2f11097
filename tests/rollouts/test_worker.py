"""Our rollout worker leaves what verl's own leaves: the same rows, tags, records and statuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import agent_loop_tq

from recipe.spiral.rollouts import worker as rollout_worker
from recipe.spiral.rollouts.dataset import GameDataset
from recipe.spiral.rollouts.worker import RolloutWorker
from tests.fake_queue import FakeQueue
from tests.test_rollout import Engine, Tokenizer, register_loops, self_play, session

VERLS: Any = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
#: What nothing reads of verl's rows: the dataset's columns again for each turn, and what only images need.
UNREAD = {"metrics", "multi_modal_inputs", "raw_prompt", "session_id", "global_steps"}


def play(
    worker_class: Any,
    rows: list[dict[str, Any]],
    engine: Engine,
    model: str,
    validate: bool = False,
    queue: FakeQueue | None = None,
    branching: tuple[int, int] = (0, 0),
) -> Any:
    """The queue's partitions after a worker has run these rows."""
    like = session(engine, model, branching=branching)
    worker = object.__new__(worker_class)
    config = {**OmegaConf.to_container(like.config), "data": {}}
    config["actor_rollout_ref"]["rollout"] = {
        "n": 1,
        "val_kwargs": {"n": 1},
        "prompt_length": 2000,
        "response_length": 24,
        "agent": {},
    }
    worker.config = OmegaConf.create(config)
    worker.llm_client, worker.tokenizer, worker.processor = engine, Tokenizer(), None
    worker.hf_model_type, worker.tools, worker.dataset_cls = None, [], GameDataset
    worker.reward_loop_worker_handles, worker.distillation_enabled, worker._loops = None, False, {}
    register_loops(worker.config, Path(model))
    trajectory = {"step": 3, "sample_index": 0, "rollout_n": 0, "validate": validate}
    queue = queue or FakeQueue()

    async def run() -> None:
        prompts = [{**row, "raw_prompt": "", "global_steps": 3, "agent_name": "spiral_game"} for row in rows]
        await asyncio.gather(*(worker._run_prompt(row, {"logprobs": True}, trajectory=trajectory) for row in prompts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recipe.spiral.rollouts.channel.tq", queue)
        patch.setattr("verl.trainer.ppo.v1.agent_loop_tq.tq", queue)
        asyncio.run(run())
    return queue.partitions


def same(ours: Any, verls: Any) -> bool:
    if isinstance(verls, torch.Tensor):
        return bool(ours.dtype == verls.dtype and torch.equal(ours, verls))
    return bool(ours == verls)


@pytest.mark.parametrize("validate", [False, True])
def test_the_rows_are_verls(tmp_path: Path, validate: bool) -> None:
    rows = [self_play(index) for index in range(6)]
    ours, verls = (play(which, rows, Engine(), str(tmp_path), validate) for which in (RolloutWorker, VERLS))
    assert ours.keys() == verls.keys() == {"games", "val" if validate else "train"}
    for partition in ours:
        assert ours[partition].keys() == verls[partition].keys()
        for key, (fields, tag) in ours[partition].items():
            expected, expected_tag = verls[partition][key]
            assert tag == expected_tag
            assert not fields.keys() - expected.keys()
            assert not expected.keys() - fields.keys() - UNREAD - rows[0].keys()
            for name, field in fields.items():
                assert same(field, expected[name]), (key, name)


class Refusing(FakeQueue):
    """Does not take the first statuses of a kind."""

    def __init__(self, status: str, times: int) -> None:
        super().__init__()
        self.status, self.times = status, times

    async def async_kv_batch_put(self, *args: Any, **kwargs: Any) -> Any:
        if self.times and self.status in [tag["status"] for tag in kwargs["tags"]]:
            self.times -= 1
            raise RuntimeError("no answer")
        return self.kv_batch_put(*args, **kwargs)


def test_a_status_that_is_not_taken_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer would wait for the row for ever."""

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(rollout_worker.os, "_exit", end)
    with pytest.raises(SystemExit, match="1"):
        play(RolloutWorker, [self_play(0)], Engine(), str(tmp_path), queue=Refusing("finished", 1))


def test_a_row_whose_game_fails_ends_as_a_failure(tmp_path: Path) -> None:
    rows = [self_play(0), self_play(1)]

    def answer(seed: int) -> Exception:
        return RuntimeError("the engine is gone")

    for worker in (RolloutWorker, VERLS):
        partition = play(worker, rows, Engine(answer), str(tmp_path))["train"]
        assert {key: tag["status"] for key, (_, tag) in partition.items()} == {"uid0": "failure", "uid1": "failure"}
