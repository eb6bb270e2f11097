"""What the recipe relies on in verl: one test for each method or attribute, so that an upgrade of verl fails here.

Each failure says what of the recipe leans on it. Much of this is private in verl, and some of it can only be seen in
its source: the order of calls, and the keys that are passed.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.utils.data import SequentialSampler
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopManager, AgentLoopOutput, AgentLoopWorker
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.trainer import main_ppo
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.utils import Role, create_rl_dataset, create_rl_sampler, need_reference_policy
from verl.trainer.ppo.v1 import agent_loop_tq, get_trainer_cls, trainer_sync
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, PPOTrainer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator
from verl.utils import fsdp_utils, torch_functional, tracking
from verl.utils import tensordict_utils as tu
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager, find_latest_ckpt_path
from verl.utils.metric.utils import AggregationType, Metric
from verl.utils.seqlen_balancing import rearrange_micro_batches
from verl.utils.tracking import Tracking
from verl.workers.config import RolloutConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient, LLMServerManager
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout import vllm_async_server
from verl.workers.utils import losses

from recipe.spiral.rollout import turns_to_rows
from recipe.spiral.spin.dpo import compute_policy_loss_dpo
from recipe.spiral.storage.checkpoints import TRACKER
from recipe.spiral.task_runner import TaskRunner
from recipe.spiral.trainer import NO_ROWS, SpiralTrainer, trainer_class
from recipe.spiral.training.game_buffer import GameBuffer
from recipe.spiral.training.in_flight import InFlight
from recipe.spiral.training.metrics import training_metrics
from recipe.spiral.workers.mini_batch_worker import MiniBatchWorker
from recipe.spiral.workers.policy_worker import PolicyWorker, use_our_workers
from recipe.spiral.workers.reference import ReferenceWorker
from tests.made import record, turn
from tests.made_configs import config

#: The class under a Ray actor class.
TQ_WORKER: Any = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class


def parameters(function: Callable[..., Any]) -> list[str]:
    """Without the one that Ray adds to the methods of a class of which there has been an actor."""
    return [name for name in inspect.signature(function).parameters if name != "_ray_trace_ctx"]


def body(function: Any) -> str:
    """A function's source on one line, without its docstring."""
    text = inspect.getsource(function)
    return " ".join(re.sub(r'"""(?s:.*?)"""', "", text, count=1).split())


def in_order(function: Any, *parts: str, of_ours: str) -> None:
    """These parts stand in the function's source, in this order."""
    text, position = body(function), 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"{function.__qualname__} no longer has {part!r} there; look at {of_ours}"
        position = found + len(part)


def test_the_version_is_the_one_that_was_read() -> None:
    assert importlib.metadata.version("verl") == "0.9.1", "another verl: read its changes before moving this test on"


# -- the task runner ---------------------------------------------------------------------------------------------------


def test_run_ppo_takes_a_task_runner() -> None:
    assert parameters(run_ppo) == ["config", "task_runner_class"]
    in_order(
        run_ppo,
        "ray.init(",
        "runner = task_runner_class.remote()",
        "ray.get(runner.run.remote(config))",
        of_ours="RemoteTaskRunner, TaskRunnerHere",
    )
    assert "task_runner_class.options(runtime_env=" in body(run_ppo), "RemoteTaskRunner.options is not needed any more"


def test_the_trainer_does_not_use_cuda() -> None:
    """It runs in a copy of a process, in which CUDA cannot start."""
    names = [
        "core_algos",
        "metric_utils",
        *(f"v1.{file.stem}" for file in Path(trainer_sync.__file__).parent.glob("*.py")),
    ]
    for name in names:
        source = inspect.getsource(importlib.import_module(f"verl.trainer.ppo.{name.removesuffix('.__init__')}"))
        used = re.findall(r"torch\.cuda|\.cuda\(|get_torch_device\(|get_device_id\(", source)
        assert not used, f"verl.trainer.ppo.{name} uses {used}: look at processes.runtime.in_a_copy"


def test_the_task_runner_can_be_subclassed_under_its_actor() -> None:
    plain = TaskRunnerV1.__ray_metadata__.modified_class
    assert issubclass(TaskRunner, plain), "task_runner.TaskRunner"
    assert parameters(plain.run)[:2] == ["self", "config"]
    assert set(parameters(plain.init_agent_loop_manager)) <= {"self", "_ray_trace_ctx"}
    in_order(
        plain.run,
        "get_trainer_cls(config.trainer.v1.trainer_mode)",
        "self.config = config",
        "self.trainer = trainer_cls(config=config)",
        "self.trainer.init()",
        "self.init_agent_loop_manager()",
        "self.trainer.fit(self.agent_loop_manager)",
        of_ours="TaskRunner, which swaps the registered trainer before",
    )


def test_trainers_are_looked_up_in_a_registry_by_mode() -> None:
    assert get_trainer_cls("sync") is TRAINER_REGISTRY["sync"], "TaskRunner.run replaces the entry"
    made = trainer_class("sync")
    assert issubclass(made, SpiralTrainer) and issubclass(made, TRAINER_REGISTRY["sync"])
    assert made.__name__ == "SpiralTrainer"


def test_the_modes_name_is_compared_literally() -> None:
    """Why the registered class is replaced, and not another mode added."""
    text = inspect.getsource(PPOTrainer)
    assert len(re.findall(r'self\.trainer_mode [!=]= "sync"', text)) >= 5, "a mode of our own may be possible now"


def test_an_agent_loop_is_made_as_verl_makes_it() -> None:
    in_order(
        AgentLoopWorker._run_agent_loop,
        "with rollout_trace_attr(",
        "agent_loop = hydra.utils.instantiate( config=agent_loop_config, "
        "trainer_config=DictConfigWrap(config=self.config), server_manager=self.llm_client, tokenizer=self.tokenizer, "
        "processor=self.processor, hf_model_type=self.hf_model_type, dataset_cls=self.dataset_cls, "
        "data_config=DictConfigWrap(self.config.data), tools=ToolListWrap(self.tools), )",
        "await agent_loop.run(sampling_params, **kwargs)",
        'await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)',
        of_ours="RolloutWorker._run_agent_loop",
    )


def test_the_managers_workers_can_be_replaced() -> None:
    plain = TaskRunnerV1.__ray_metadata__.modified_class
    assert 'get("agent_loop_manager_class")' in body(plain.init_agent_loop_manager), "RolloutManager"
    given = ".remote( self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles, )"
    for part in ("self.agent_loop_workers_class.options(", given):
        assert part in body(AgentLoopManager._init_agent_loop_workers), "RolloutManager"


def test_games_begin_with_the_workers_of_the_manager() -> None:
    in_order(
        agent_loop_tq.AgentLoopManagerTQ.generate_sequences,
        "chunkes = prompts.chunk(len(self.agent_loop_workers))",
        "ray.get(",
        "worker.generate_sequences.remote(chunk)",
        of_ours="RolloutManager.generate_sequences",
    )
    in_order(
        TQ_WORKER.generate_sequences,
        "self._run_prompt(",
        "self.background_tasks.add(task)",
        "task.add_done_callback(self.background_tasks.discard)",
        of_ours="RolloutWorker.games_under_way and until_over",
    )


# -- the trainer's hooks -----------------------------------------------------------------------------------------------

#: The methods that SpiralTrainer overrides or calls, with verl's parameters after self.
HOOKS = {
    "__init__": ["config"],
    "_build_replay_buffer": [],
    "prepare_step": [],
    "fit": ["agent_loop_manager"],
    "get_llm_client": [],
    "on_init_end": [],
    "on_train_begin": [],
    "on_step_begin": [],
    "on_sample_end": [],
    "step": ["metrics", "timing_raw"],
    "on_step_end": [],
    "on_train_end": [],
    "_step_once": ["metrics", "timing_raw", "sample_batch_size"],
    "_init_resource_pool_mgr": [],
    "_balance_batch": ["batch", "metrics", "logging_prefix", "keep_minibatch"],
    "_compute_advantage": ["batch", "metrics"],
    "_compute_values": ["batch", "metrics"],
    "_update_actor": ["batch", "metrics"],
    "_update_critic": ["batch", "metrics"],
    "_compute_metrics": ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
    "_validate": [],
    "_val_metrics_update": [
        "data_sources",
        "sample_uids",
        "reward_extra_infos_dict",
        "sample_turns",
        "expected_acc_counts",
    ],
    "_maybe_log_val_generations": ["inputs", "outputs", "scores"],
    "_save_checkpoint": [],
    "_load_checkpoint": [],
}
#: Those of ``InFlight``.
IN_FLIGHT_HOOKS = {
    "__init__": ["config"],
    "_build_replay_buffer": [],
    "prepare_step": [],
    "_add_async_warmup_batches": ["num_warmup_batches"],
    "_submit_batch_to_rollout": ["batch"],
    "_compute_advantage": ["batch", "metrics"],
    "_compute_metrics": ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
    "_reissue_inflight_prompts": ["partition_id"],
}


#: What SpiralTrainer defines.
OURS = vars(SpiralTrainer)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_has_the_parameters_that_it_is_overridden_with(name: str) -> None:
    assert parameters(getattr(PPOTrainer, name))[1:] == HOOKS[name], f"SpiralTrainer.{name}"


def test_every_override_is_under_contract() -> None:
    overridden = {name for name, value in OURS.items() if name in dir(PPOTrainer) and callable(value)}
    assert overridden - {"__init__"} <= set(HOOKS)


@pytest.mark.parametrize("name", IN_FLIGHT_HOOKS)
def test_a_hook_of_the_asynchronous_modes_has_the_parameters_that_it_is_overridden_with(name: str) -> None:
    assert parameters(getattr(PPOTrainer, name))[1:] == IN_FLIGHT_HOOKS[name], f"InFlight.{name}"


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_the_mixin_of_the_asynchronous_modes_comes_first(mode: str) -> None:
    made = trainer_class(mode)
    assert made.__mro__[1:3] == (InFlight, SpiralTrainer) and made.__mro__[3] is get_trainer_cls(mode)
    ours = {name for name, value in vars(InFlight).items() if callable(value) and name in dir(PPOTrainer)}
    assert ours - {"__init__", "__subclasshook__", "__init_subclass__"} <= IN_FLIGHT_HOOKS.keys()
    assert not issubclass(trainer_class("sync"), InFlight)


def test_a_game_is_stored_before_it_is_launched_and_launched_again_from_there() -> None:
    in_order(
        PPOTrainer._submit_batch_to_rollout,
        'if self.trainer_mode != "sync":',
        "fields=batch.select(",
        "self.agent_loop_manager.generate_sequences(batch)",
        of_ours="InFlight._submit_batch_to_rollout, whose seats are stored",
    )
    in_order(
        PPOTrainer._reissue_inflight_prompts,
        'tag.get("status") in ("pending", "running")',
        "batch = tq.kv_batch_get(keys=inflight_uids, partition_id=partition_id)",
        "self.agent_loop_manager.generate_sequences(batch)",
        of_ours="InFlight._reissue_inflight_prompts",
    )
    in_order(
        PPOTrainer.fit,
        "self._save_checkpoint()",
        "tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)",
        of_ours="InFlight._clean_up",
    )
    in_order(
        PPOTrainer._save_checkpoint,
        'if self.trainer_mode != "sync":',
        'os.path.join(local_global_step_folder, "transfer_queue")',
        of_ours="storage.checkpoints",
    )


def test_games_are_launched_ahead_before_the_first_step() -> None:
    in_order(
        PPOTrainer.fit,
        "self.global_steps += 1",
        "self._reissue_inflight_prompts()",
        "self.on_train_begin()",
        "self.on_step_begin()",
        of_ours="InFlight._reissue_inflight_prompts, which chooses the opponents of what is launched ahead",
    )
    for mode in ("colocate_async", "separate_async"):
        text = body(get_trainer_cls(mode).on_train_begin)
        assert f"_add_async_warmup_batches(self.config.trainer.v1.{mode}.num_warmup_batches)" in text
    assert "missing_prompts = max(0, target_prompts - restored_prompts)" in body(PPOTrainer._add_async_warmup_batches)


def test_an_asynchronous_buffer_samples_in_these_steps() -> None:
    in_order(
        ReplayBufferAsync.wait_for_sampleable,
        "self._sync_metadata_from_transfer_queue()",
        "self._terminal_eviction_reasons(global_steps, partition_id)",
        "self._evict_terminal_groups(",
        "self.refill_fn(len(evicted_uids))",
        "self._has_enough_samples(global_steps, partition_id, target_count, sampleable_keys)",
        of_ours="GameBuffer",
    )
    in_order(
        ReplayBufferAsync.sample,
        "self.wait_for_sampleable(",
        "self._select_prompt_uids(",
        "return self._materialize_batch(",
        of_ours="GameBuffer",
    )
    assert parameters(ReplayBuffer._sync_metadata_from_transfer_queue) == ["self"], "GameBuffer.launch_turns"
    for name in ("_stale_terminal_keys", "_terminal_eviction_reasons", "_evict_terminal_groups", "_has_enough_samples"):
        expected = parameters(getattr(ReplayBufferAsync, name))
        assert parameters(getattr(GameBuffer, name)) == expected, f"GameBuffer.{name}"
    for name in ("_select_prompt_uids", "_materialize_batch"):
        assert parameters(getattr(GameBuffer, name)) == parameters(getattr(ReplayBufferAsync, name))
    assert "global_steps - prompt_global_steps + 1) >= self.max_off_policy_threshold" in body(
        ReplayBufferAsync._has_enough_samples
    ), "GameBuffer, whose max_staleness is one less than the threshold"
    assert "sampler_cls(**replay_buffer_kwargs)" in body(PPOTrainer._build_replay_buffer)


def test_the_client_is_made_by_the_last_manager_of_servers() -> None:
    ours = "SpiralTrainer.get_llm_client, of _rollout_server_managers"
    assert "self.llm_server_manager.get_client()" in body(PPOTrainer.get_llm_client), ours
    for mode, manager in (("colocate_async", "llm"), ("separate_async", "standalone")):
        made = f"self.{manager}_server_manager.get_client(client_cls=FullyAsyncLLMServerClient)"
        assert made in body(get_trainer_cls(mode).get_llm_client), ours
    assert "managers.append(standalone)" in body(PPOTrainerSeparateAsync._rollout_server_managers), ours
    assert parameters(LLMServerManager.get_client) == ["self", "client_cls", "kwargs"], ours
    in_order(
        FullyAsyncLLMServerClient.generate,
        "await super().generate(",
        "prompt_ids=prompt_ids + final_output.token_ids",
        "sampling_params=sampling_params",
        "**kwargs",
        of_ours="resuming_client.Parts",
    )


def test_separate_devices_have_workers_that_only_train() -> None:
    in_order(
        PPOTrainerSeparateAsync._init_resource_pool_mgr,
        "super()._init_resource_pool_mgr()",
        "if Role.Actor in self.role_worker_mapping:",
        "ray.remote(DetachActorWorker)",
        of_ours="workers.use_our_workers",
    )
    assert 'hybrid_engine", True' in body(PPOTrainerSeparateAsync.__init__), "checks/settle.py"
    classes: dict[Any, Any] = {Role.Actor: None, Role.RefPolicy: None}
    use_our_workers(classes)
    assert all(issubclass(one.__ray_metadata__.modified_class, PolicyWorker) for one in classes.values())
    assert issubclass(PolicyWorker, DetachActorWorker)
    changed = {name for name in vars(DetachActorWorker) if name in dir(ActorRolloutRefWorker)}
    assert not {name for name in changed if not name.startswith("__")}, "PolicyWorker has it in other modes, too"


def test_verl_prints_with_an_argument_that_loggers_do_not_take() -> None:
    assert "flush=True" in body(PPOTrainerSeparateAsync._setup), "TaskRunner.run need not silence its logger any more"


def test_nothing_of_ours_is_overridden_by_chance() -> None:
    """Names that are ours alone must not become verl's."""
    ours = {name for name in OURS if not name.startswith("__")} - set(HOOKS)
    clash = ours & (set(dir(get_trainer_cls("sync"))) | set(re.findall(r"self\.(\w+)", inspect.getsource(PPOTrainer))))
    assert not clash - {"config", "global_steps", "logger"}, f"verl's trainer has {clash} now too"
    attributes = {"state", "launched", "current", "opponents", "_stopped_by", "_trackers"}
    clash = attributes & set(re.findall(r"self\.(\w+)", inspect.getsource(PPOTrainer)))
    assert not clash, f"verl's trainer has the attributes {clash} now too"


def test_a_step_samples_balances_and_only_then_computes() -> None:
    in_order(
        PPOTrainer._step_once,
        "self.replay_buffer.sample(",
        "self.on_sample_end()",
        "batch = self._balance_batch(batch, metrics=metrics)",
        "self._compute_old_log_prob(batch",
        "self._compute_advantage(batch, metrics=metrics)",
        "self._update_actor(batch, metrics=metrics)",
        of_ours="SpiralTrainer._balance_batch, which is to be the first that sees rows",
    )


def test_a_run_saves_validates_and_counts_in_the_order_that_we_expect() -> None:
    in_order(
        PPOTrainer.fit,
        "self.agent_loop_manager = agent_loop_manager",
        "self._validate()",
        "self.global_steps += 1",
        "self.on_train_begin()",
        'marked_timer("step", self.timing_raw)',
        "self.step(metrics, self.timing_raw)",
        "self._save_checkpoint()",
        "self.on_step_end()",
        "self._validate()",
        "self._compute_metrics(batch, metrics, self.timing_raw, global_steps=self.global_steps",
        "tq.kv_clear(keys=batch.keys",
        "self.logger.log(data=metrics",
        of_ours="SpiralTrainer: records, console, checkpoints; and that of a stop, which on_step_end saves",
    )
    assert "total_training_steps" in body(PPOTrainer.fit), "SpiralTrainer.on_train_begin"
    in_order(
        PPOTrainer.fit,
        "self.global_steps <= self.total_training_steps:",
        "is_last_step = self.global_steps >= self.total_training_steps",
        "self.step(metrics, self.timing_raw)",
        "self.global_steps += 1",
        "if is_last_step:",
        "return",
        "self.on_train_end()",
        of_ours="SpiralTrainer.step and on_train_end, by which the guard ends a run",
    )


def test_prompts_are_launched_through_the_agent_loop_manager() -> None:
    for method in (PPOTrainer._submit_batch_to_rollout, PPOTrainer._validate):
        assert "self.agent_loop_manager.generate_sequences(batch)" in body(method), (
            "launched.Launches counts games there"
        )


def test_verls_own_balancing_pads_and_orders_and_does_nothing_else() -> None:
    """Ours takes its place, with the same function for the padding."""
    in_order(
        PPOTrainer._balance_batch,
        'role, worker_group = "actor", self.actor_rollout_wg',
        "worker_group._query_dispatch_info(role)",
        "dp_size = max(dp_rank_mapping) + 1",
        "upsample_batch_to_divisible_size(batch, batch_multiple, self.tokenizer.eos_token_id)",
        "batch.reorder(",
        "metrics.update(global_balance_stats)",
        "return batch",
        of_ours="SpiralTrainer._balance_batch",
    )
    text = body(PPOTrainer._balance_batch)
    assert text.count("metrics.update(") == 1 and "tq." not in text and "self.config" not in text, (
        "it does something else, too"
    )


def test_padding_rows_are_tagged_and_masked() -> None:
    """They clone the first row's fields, so only tag and mask tell them from real rows."""
    sample = {"position_ids": torch.arange(4), "extra_fields": {"player": 1}, "rm_scores": torch.ones(2)}
    padded, tag = padding_utils.construct_minimal_padding_template(sample, {"status": "success", "seq_len": 4}, 2)
    assert tag["is_padding"] is True, "Rows.places, which know no row of padding"
    assert int(padded["response_mask"].sum()) == 0, "rows.estimate: padding has no advantage"
    assert float(padded["rm_scores"].sum()) == 0.0
    assert padded["extra_fields"] == {"player": 1}


def test_the_advantage_is_left_to_the_registered_estimator() -> None:
    in_order(
        PPOTrainer._compute_advantage,
        "tq.kv_batch_get(keys=batch.keys",
        "apply_kl_penalty(",
        'data.batch["token_level_rewards"] = data.batch["token_level_scores"]',
        "compute_advantage_for_multi_trajectories(",
        "adv_estimator=self.config.algorithm.adv_estimator",
        'fields = ["advantages", "returns"]',
        "tq.kv_batch_put(keys=batch.keys",
        of_ours="rows.register",
    )


def test_rejected_tokens_are_masked_before_advantages_are_made() -> None:
    in_order(
        PPOTrainer._compute_advantage,
        "compute_rollout_correction_and_add_to_batch(",
        "compute_advantage_for_multi_trajectories(",
        'fields.append("response_mask")',
        of_ours="Rows.note_training, to which a turn without a token is rejected",
    )
    text = inspect.getsource(inspect.getmodule(PPOTrainer))
    for name in ("rollout_rs", "apply_bypass_mode"):
        assert name not in text, "checks, which say that with bypass_mode nothing is rejected"


def test_the_update_tells_workers_its_batch_sizes_by_these_names() -> None:
    in_order(
        PPOTrainer._update_actor,
        '"global_batch_size": ppo_mini_batch_size',
        '"mini_batch_size": ppo_mini_batch_size',
        "batch.extra_info.update(extra_info)",
        "self.actor_rollout_wg.update_actor(batch)",
        of_ours="SpiralTrainer._update, which writes its own into batch.extra_info in between",
    )
    assert '"dataloader_kwargs": {"shuffle": ' in body(PPOTrainer._update_actor), "MiniBatchWorker.train_mini_batch"


def test_workers_split_a_batch_by_mini_batch_size_in_order() -> None:
    in_order(
        TrainingWorker.train_mini_batch,
        'mini_batch_size = tu.pop(data, key="mini_batch_size"',
        "mini_batch_size % self.engine.get_data_parallel_size() == 0",
        "mini_batch_size_per_gpu = mini_batch_size // self.engine.get_data_parallel_size()",
        "mini_batch_size=mini_batch_size_per_gpu",
        of_ours="MiniBatchWorker, and step.layout, which puts a rank's mini-batches one after another",
    )


def test_a_mini_batch_can_be_looked_at_before_it_is_trained() -> None:
    """And one that is passed over need not have metrics."""
    for name, expected in (
        ("train_mini_batch", ["data"]),
        ("train_batch", ["data"]),
        ("set_loss_fn", ["loss_fn"]),
    ):
        verls, ours = getattr(TrainingWorker, name), getattr(MiniBatchWorker, name)
        assert parameters(verls)[1:] == parameters(ours)[1:] == expected, f"MiniBatchWorker.{name}"
        for key, value in getattr(verls, MAGIC_ATTR).items():
            mine = getattr(ours, MAGIC_ATTR)[key]
            assert mine == value or mine.keys() == value.keys(), f"MiniBatchWorker.{name} is called otherwise: {key}"
    in_order(
        TrainingWorker.train_mini_batch,
        'seed = tu.pop(data, key="seed"',
        'dataloader_kwargs = tu.pop(data, key="dataloader_kwargs"',
        "seed=seed + self.engine.get_data_parallel_rank()",
        "update_lr_scheduler=batch_idx == total_num_iterations - 1",
        "self.train_batch(mini_batch_td)",
        '[tu.get(output, "metrics") for output in output_lst]',
        "for key, val in output.items():",
        of_ours="MiniBatchWorker",
    )
    in_order(TrainingWorker.train_batch, "loss_function=self.loss_fn", "lr_scheduler_step()", of_ours="MiniBatchWorker")


def test_a_worker_can_tell_padding_from_turns() -> None:
    sample = {"position_ids": torch.arange(4), "num_turns": 5}
    padded, _ = padding_utils.construct_minimal_padding_template(sample, {"status": "success"}, 2)
    assert padded["num_turns"] == 0, "mini_batch_worker.turns_in"
    made = turns_to_rows(record(0, turns=[turn(0, 0), turn(1, 0)]), 0)
    assert {row.num_turns for row in made} == {2}, "mini_batch_worker.turns_in"


def test_parts_of_a_mini_batch_are_added_up_after_ranks_are_averaged() -> None:
    ranks = [Metric(AggregationType.SUM), Metric(AggregationType.SUM)]
    for metric, values in zip(ranks, ([1.0, 2.0], [3.0, 6.0]), strict=True):
        metric.extend(values)
    assert Metric.aggregate_dp(ranks) == 2.0 + 4.0, "mini_batch_worker.TokenMeans"
    text = body(losses.ppo_loss)
    assert "Metric.from_dict(pg_metrics, aggregation=AggregationType.MEAN)" in text, "mini_batch_worker.TokenMeans"


def test_rows_of_a_pair_are_in_one_micro_batch() -> None:
    """By tokens and in fixed numbers; and where it cannot be, verl says so on all ranks."""
    in_order(
        prepare_micro_batches,
        'force_group_size = tu.get_non_tensor_data(data=data, key="force_group_size", default=1)',
        "force_group_size=force_group_size",
        "total_data_size // (micro_batch_size_per_gpu * force_group_size)",
        of_ours="workers.dpo, whose pairs are rows 2i and 2i + 1",
    )
    lengths = [90, 10, 30, 20, 60, 60, 5, 5]
    ids = torch.nested.as_nested_tensor([torch.arange(n) for n in lengths], layout=torch.jagged)
    data = tu.get_tensordict({"input_ids": ids}, {})
    _, parts = rearrange_micro_batches(data, max_token_len=130, force_group_size=2)
    assert sorted(i for part in parts for i in part) == [*range(8)]
    assert all(second == first + 1 for part in parts for first, second in zip(part[::2], part[1::2], strict=True))
    with pytest.raises(ValueError, match="forced group exceeds"):
        rearrange_micro_batches(data, max_token_len=119, force_group_size=2)


def test_a_policy_loss_is_called_with_marks_within_our_loss() -> None:
    in_order(
        losses.ppo_loss,
        'config.global_batch_info["dp_size"]',
        'config.global_batch_info["global_batch_size"]',
        '"ref_log_prob" in data',
        "data = data.select(*fields).to_padded_tensor()",
        'config.policy_loss.get("loss_mode"',
        "pg_loss, pg_metrics = policy_loss_fn(",
        "policy_loss = pg_loss",
        "policy_loss += kl_loss * config.kl_loss_coef",
        of_ours="workers.dpo",
    )
    assert parameters(compute_policy_loss_dpo) == parameters(compute_policy_loss_vanilla)
    assert "use_kl_loss" in body(need_reference_policy), "loss=dpo, which asks for a reference by it"


def test_the_engine_clips_to_the_optimizers_key() -> None:
    assert "max_norm=self.optimizer_config.clip_grad" in body(FSDPEngine.optimizer_step), (
        "actor.optim.clip_grad in checks/settle.py"
    )
    assert "grad_clip" not in body(FSDPEngine.optimizer_step)


def test_the_loss_divides_by_the_batch_size_that_it_is_told() -> None:
    text = body(losses.ppo_loss)
    for part in ('config.global_batch_info["global_batch_size"] = data["global_batch_size"]', "loss_scale_factor"):
        assert part in text, "MiniBatchWorker, and loss_scale_factor in checks/settle.py"


def test_a_tracker_may_be_added_to_verls() -> None:
    assert "self.logger = Tracking(" in body(PPOTrainer.fit), "SpiralTrainer.logger adds the run's own file there"
    tracking = Tracking("project", "experiment", [])
    logged: list[tuple[dict[str, float], int]] = []
    tracking.logger["spiral"] = SimpleNamespace(log=lambda data, step: logged.append((data, step)))
    tracking.log({"games/count": 2.0}, 3)
    tracking.finish()
    assert logged == [({"games/count": 2.0}, 3)]


def test_metrics_of_a_step_pass_the_aggregator_unchanged() -> None:
    """verl reduces metrics by parts of their names ("max", "sum", ...); of one step, that must change nothing."""
    metrics = training_metrics([record(0, rewards=(1.0, -1.0), turns=[turn(0, 0, advantage=1.0), turn(1, 0)])], [])
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics, sample_count=2)
    assert aggregator.get_aggregated_metrics() == metrics


def test_a_round_without_rows_is_an_error_whose_games_stay_in_the_queue() -> None:
    in_order(
        ReplayBuffer.sample,
        'partition_id != "val" and not any(',
        f"{NO_ROWS}",
        "raise RuntimeError(message)",
        "return self._materialize_batch(",
        of_ours="TurnBuffer._sample_round",
    )
    assert parameters(ReplayBuffer._clear_groups) == ["self", "partition_id", "uids"]
    assert "tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)" in body(ReplayBuffer._materialize_batch)
    for status in ("finished_keys", "failure_keys"):
        assert f"self.{status}" in body(ReplayBuffer._clear_groups), "TurnBuffer._sample_round"


# -- the reference policy ----------------------------------------------------------------------------------------------


def test_the_workers_class_can_be_replaced_before_workers_are_made() -> None:
    in_order(
        PPOTrainer._init_resource_pool_mgr,
        "Role.ActorRolloutRef if need_reference_policy(config) and not ref_in_actor else Role.ActorRollout",
        "self.role_worker_mapping[role] = ray.remote(ActorRolloutRefWorker)",
        of_ours="workers.use_our_workers",
    )
    in_order(
        PPOTrainer._setup,
        "self._init_resource_pool_mgr()",
        "cls=self.role_worker_mapping[actor_role]",
        "self.actor_rollout_wg.init_model()",
        "self._load_checkpoint()",
        of_ours="SpiralTrainer._init_resource_pool_mgr, and _load_checkpoint, which asks the workers",
    )
    assert "self.role_worker_mapping[Role.Critic] = ray.remote(TrainingWorker)" in body(
        PPOTrainer._init_resource_pool_mgr
    ), "workers.use_our_workers"
    assert {Role.ActorRolloutRef, Role.ActorRollout} <= set(Role)


def test_a_worker_has_the_reference_beside_the_actor() -> None:
    """The methods of ours are new names, and overrides go to all ranks as verl's do."""
    in_order(
        ActorRolloutRefWorker.init_model,
        'if "ref" in self.role:',
        "self.ref = self.ref_worker_cls(config=ref_training_config)",
        'if "actor" in self.role:',
        "self.actor = self.actor_worker_cls(config=actor_training_config)",
        of_ours="ReferenceWorker",
    )
    assert "self.ref: TrainingWorker | None = None" in body(ActorRolloutRefWorker.__init__), "ReferenceWorker: LoRA"
    assert "self.engine: BaseEngine = " in body(TrainingWorker.__init__), "ReferenceWorker takes engine.module"
    assert "self.module = module" in body(FSDPEngine._build_model_optimizer), "ReferenceWorker takes engine.module"
    ours = {"update_reference", "save_reference", "load_reference", "reference_engine", "_adapter"}
    clash = ours & (set(dir(ActorRolloutRefWorker)) | set(re.findall(r"self\.(\w+)", body(ActorRolloutRefWorker))))
    assert not clash, f"verl's worker has {clash} now too"
    assert not any("update_ref" in name or "copy_ref" in name for name in dir(ActorRolloutRefWorker)), (
        "verl can update a reference itself now"
    )
    one_to_all = getattr(ActorRolloutRefWorker.save_checkpoint, MAGIC_ATTR)
    for name in ("update_reference", "save_reference", "load_reference"):
        assert getattr(getattr(ReferenceWorker, name), MAGIC_ATTR) == one_to_all, f"ReferenceWorker.{name}"
    mine, verls = (
        getattr(cls.compute_log_prob, MAGIC_ATTR)["dispatch_mode"] for cls in (ReferenceWorker, ActorRolloutRefWorker)
    )
    for part in ("dispatch_fn", "collect_fn"):
        assert mine[part].args == verls[part].args == ("actor",), "ReferenceWorker.compute_log_prob"


def test_with_lora_the_actor_is_asked_for_the_references_log_probabilities() -> None:
    in_order(
        PPOTrainer._compute_ref_log_prob,
        'metadata["no_lora_adapter"] = True',
        "self.actor_rollout_wg.compute_log_prob(batch)",
        "self.ref_policy_wg.compute_ref_log_prob(batch)",
        of_ours="ReferenceWorker.compute_log_prob",
    )
    in_order(
        TrainingWorker.infer_batch,
        'no_lora_adapter = tu.pop(data, key="no_lora_adapter", default=False)',
        "self.engine.disable_adapter() if no_lora_adapter else nullcontext()",
        of_ours="ReferenceWorker.compute_log_prob, which takes the key out",
    )
    in_order(
        PPOTrainer._compute_values,
        "batch.extra_info.update(",
        "self.critic_wg.infer_batch(batch)",
        of_ours="SpiralTrainer._compute_values, which takes the key out of extra_info",
    )
    assert parameters(ActorRolloutRefWorker.compute_log_prob) == ["self", "data"]
    assert '"lora_" in k' in inspect.getsource(fsdp_checkpoint_manager), "ReferenceWorker finds the adapter by name"


def test_a_models_shards_lie_where_its_state_dict_says() -> None:
    """A reference is on the host on GPUs, an offloaded actor may still be on its way there."""
    in_order(
        FSDPEngine._build_fsdp_module,
        "self.engine_config.offload_policy or self.engine_config.forward_only",
        "CPUOffloadPolicy(pin_memory=True)",
        of_ours="reference.copy_shards, across devices",
    )
    assert 'model.to("cpu", non_blocking=True)' in body(fsdp_utils.offload_fsdp2_model_to_cpu), (
        "reference.local_shards synchronizes for this"
    )
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    in_order(
        FSDPParamGroup._register_state_dict_hooks,
        "self._to_sharded()",
        "register_state_dict_pre_hook(to_sharded_hook)",
        of_ours="reference.local_shards: asking for the state ends what was gathered for a forward pass",
    )


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_the_replay_buffer_waits_for_poll_interval() -> None:
    assert inspect.signature(ReplayBuffer.__init__).parameters["poll_interval"].default == 2.0
    assert "self.poll_interval = poll_interval" in body(ReplayBuffer.__init__)
    assert "time.sleep(self.poll_interval)" in body(ReplayBuffer._wait_for_next_poll), "RestingBuffer sets it"
    assert parameters(ReplayBuffer._wait_for_next_poll) == ["self", "partition_id", "last_debug_time"]
    assert "self._wait_for_next_poll(" in body(ReplayBuffer.sample), (
        "RestingBuffer waits there for the end of all games"
    )
    for waits in (ReplayBuffer.sample, ReplayBufferAsync.wait_for_sampleable):
        assert "self._sync_metadata_from_transfer_queue()" in body(waits), "RestingBuffer measures it"


def test_games_are_launched_where_ours_hold_on() -> None:
    in_order(PPOTrainer.step, "self.prepare_step()", "self._step_once(", of_ours="SpiralTrainer.prepare_step")
    assert body(PPOTrainer.prepare_step).endswith("self._add_batch_to_generate() return {}"), (
        "SpiralTrainer.prepare_step"
    )
    assert parameters(PPOTrainer._add_prompts_to_generate) == ["self", "num_prompts"], "TurnBuffer's launch"
    in_order(
        PPOTrainer._next_train_batch,
        'self.config.data.get("gen_batch_size", None) or train_batch_size',
        "num_prompts % gen_batch_size != 0",
        'tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)',
        of_ours="data.gen_batch_size in checks/settle.py, and launched.Launched, which reads the step there",
    )
    assert "batch_size=gen_batch_size" in body(PPOTrainer._init_dataloader)


def test_a_sample_takes_its_games_off_the_queue_and_leaves_their_rows() -> None:
    assert parameters(ReplayBuffer.sample) == ["self", "global_steps", "partition_id", "batch_size"], (
        "TurnBuffer.sample"
    )
    text = body(PPOTrainer._step_once)
    for part in ("global_steps=self.global_steps", 'partition_id="train"', "batch_size=sample_batch_size"):
        assert part in text, "TurnBuffer.sample"
    in_order(
        ReplayBuffer._materialize_batch,
        "tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)",
        "if uid in selected:",
        of_ours="TurnBuffer.sample, whose next round sees none of the last one's games",
    )


def test_the_replay_buffer_minds_no_other_partition() -> None:
    """It lists all partitions, the games' among them; entries without is_prompt must be passed over."""
    text = body(ReplayBuffer._sync_metadata_from_transfer_queue)
    assert 'if tag.get("is_prompt", False):' in text, "channel"


def test_a_batch_without_rows_is_an_error() -> None:
    assert NO_ROWS in body(ReplayBuffer.sample), "SpiralTrainer._step_once"


def test_a_failed_game_still_ends_its_batch() -> None:
    in_order(
        ReplayBuffer._sampleable_terminal_keys,
        "self.finished_keys[partition_id] | self.failure_keys[partition_id]",
        of_ours="channel: failures are found by games, because verl samples failed groups too",
    )


# -- the rollout -------------------------------------------------------------------------------------------------------


def test_an_agent_loop_is_given_what_ours_takes() -> None:
    assert parameters(AgentLoopBase.run) == ["self", "sampling_params", "kwargs"], "GameAgentLoop.run"
    in_order(
        AgentLoopBase.__init__,
        "self.config = trainer_config.config",
        "self.rollout_config = ",
        "self.server_manager = server_manager",
        "self.tokenizer = tokenizer",
        "self.apply_chat_template_kwargs = ",
        of_ours="GameAgentLoop",
    )


def test_sessions_of_a_prompt_run_in_one_worker_and_know_their_number() -> None:
    in_order(
        TQ_WORKER._run_prompt,
        'prompt.pop("__rollout_n__"',
        "for i in range(n):",
        "asyncio.create_task(",
        "session_id=i, **prompt",
        "_settle_session_tasks(tasks)",
        '"failure"',
        of_ours="GameAgentLoop: session p is player p",
    )
    assert 'prompt["uid"]' in body(TQ_WORKER._run_prompt), "rollout._tables is by uid"
    in_order(AgentLoopWorker._run_agent_loop, "agent_loop.run(sampling_params, **kwargs)", of_ours="GameAgentLoop.run")


def test_sampling_is_verls() -> None:
    text = body(TQ_WORKER.generate_sequences)
    for name in ("temperature=", "top_p=", "top_k=", "logprobs=config.calculate_log_probs"):
        assert name in text, "PolicyPlayer passes sampling on to the engine"
    assert "sampling_params" in parameters(LLMServerClient.generate)
    assert {"request_id", "prompt_ids"} <= set(parameters(LLMServerClient.generate)), "GameAgentLoop._generate"


def test_rows_are_keyed_by_uid_session_and_index() -> None:
    text = body(TQ_WORKER._agent_loop_postprocess)
    assert 'keys.append(f"{uid}_{session_id}_{i}")' in text
    assert "_" not in str(uuid.uuid4()), "verl's keys are split at underscores"


def test_the_last_rows_reward_is_every_rows_of_a_session() -> None:
    """Why a session is one player: both players' turns in one session would all get one reward."""
    in_order(
        TQ_WORKER._agent_loop_postprocess,
        "final_output = outputs[-1]",
        "output.reward_score = final_output.reward_score",
        'final_output.extra_fields["reward_extra_info"]',
        of_ours="rollout.turns_to_rows",
    )


def test_a_session_may_have_no_rows() -> None:
    in_order(TQ_WORKER._agent_loop_postprocess, "if not outputs:", "return", of_ours="players who never moved")


def test_rewards_that_are_set_ask_no_reward_worker() -> None:
    assert "if final_output.reward_score is None and enable_async_reward:" in body(AgentLoopWorker._compute_score)


def test_our_rows_are_verls_rows() -> None:
    """Through verl's own model: fields, dtypes, the reward on the last token, and what the tags are made of."""
    played = record(3, rewards=(1.0, -1.0), turns=[turn(0, 0, length=3), turn(1, 0), turn(0, 1, length=2)])
    rows = turns_to_rows(played, 0)
    assert all(isinstance(row, AgentLoopOutput) for row in rows)
    fields = [row.as_dict() for row in rows]
    assert [field["rm_scores"].tolist() for field in fields] == [[0.0, 0.0, 1.0], [0.0, 1.0]]
    for field in fields:
        assert {"prompts", "responses", "response_mask", "rollout_log_probs", "num_turns", "extra_fields"} <= set(field)
        assert field["response_mask"].all()
        assert {"min_global_steps", "max_global_steps", "reward_extra_info"} <= set(field["extra_fields"])
    assert [len(field["responses"]) for field in fields] == [3, 2]
    assert {frozenset(field) for field in fields} == {frozenset(fields[0])}, "every row must have the same columns"
    assert turns_to_rows(record(0, turns=[turn(0, 0)]), 1) == []


def test_the_engine_answers_with_what_we_read() -> None:
    assert {"token_ids", "log_probs", "stop_reason", "extra_fields"} <= set(TokenOutput.model_fields)
    text = body(LLMServerClient.generate)
    for name in ("min_global_steps", "max_global_steps"):
        assert f'output.extra_fields.setdefault("{name}"' in text, "GameAgentLoop._generate"


def test_the_engine_takes_our_limit_and_our_seed() -> None:
    text = body(vllm_async_server.vLLMHttpServer.generate)
    assert 'max_tokens = sampling_params.pop("max_tokens")' in text, "GameAgentLoop._generate: what is cut off"
    assert "SamplingParams(max_tokens=max_tokens, **sampling_params)" in text, "a seed of its own for every turn"
    assert 'sampling_params.setdefault("seed"' in text, "full_determinism must not overwrite the turn's seed"


def test_the_engines_classes_are_ours() -> None:
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.replica import get_rollout_replica_class

    from recipe.spiral.workers import engine  # noqa: F401
    from recipe.spiral.workers.engine.vllm import VLLMAdapter, VLLMReplica

    assert get_rollout_class("vllm") is VLLMAdapter
    assert get_rollout_replica_class("vllm") is VLLMReplica


def test_two_runs_on_a_machine_would_share_a_socket() -> None:
    """Fails when the names that ``engine.vllm`` gives are not needed any more, or no longer reach both ends."""
    from verl.workers.rollout.vllm_rollout import vllm_rollout

    sender = body(vllm_rollout.ServerAdapter.__init__)
    assert "job_id = ray.get_runtime_context().get_job_id()" in sender
    assert 'self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{job_id}-replica-' in sender
    server = body(vllm_async_server.vLLMHttpServer.__init__)
    assert 'os.environ["VERL_RAY_JOB_ID"] = ray.get_runtime_context().get_job_id()' in server
    assert "self.server_class = ray.remote(vLLMHttpServer)" in body(vllm_async_server.vLLMReplica.__init__)


# -- data --------------------------------------------------------------------------------------------------------------


def test_the_dataset_is_made_as_verl_makes_it() -> None:
    config = OmegaConf.create(
        {
            "games": ["TicTacToe"],
            "run_seed": 0,
            "batch_unit": "games",
            "train_batch_size": 4,
            "games_per_start": 1,
            "opponents": [],
            "validation": {"games": None, "games_per_role": 2, "opponents": ["random"]},
            "custom_cls": {"path": "pkg://recipe.spiral.rollouts.dataset", "name": "GameDataset"},
            "shuffle": False,
        }
    )
    train = create_rl_dataset("train", config, None, None, is_train=True, max_samples=-1)
    val = create_rl_dataset("val", config, None, None, is_train=False, max_samples=-1)
    assert (train[0]["seat"]["trainable"], len(val)) == ([0, 1], 4)
    sampler = create_rl_sampler(config, train)
    assert isinstance(sampler, SequentialSampler), "a game's key follows from its place in the sequence"


def test_rows_survive_the_collator() -> None:
    """Into object arrays, one entry a row: dictionaries and lists stay what they are."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import collate_fn

    from recipe.spiral.players.seeds import GameKey
    from recipe.spiral.rollouts.schedule import GameShare, validation_rows

    rows = validation_rows([("random", [GameShare("TicTacToe"), GameShare("Nim")])], 0, 2)
    batch = collate_fn(rows)
    batch["uid"] = np.array([str(i) for i in range(len(rows))], dtype=object)
    assert [GameKey(**key) for key in tu.get_tensordict(batch)["key"]] == [GameKey(**row["key"]) for row in rows]
    assert list(tu.get_tensordict(batch)["seat"]) == [row["seat"] for row in rows]
    assert list(batch["__rollout_n__"]) == [1] * len(rows)


def test_the_agent_loop_config_names_ours(tmp_path: Path) -> None:
    from hydra.utils import get_class

    from recipe.spiral import rollout
    from recipe.spiral.main_spiral import write_agent_loops
    from recipe.spiral.rollouts.schedule import AGENT
    from recipe.spiral.spin import question_dataset
    from recipe.spiral.spin.answer_loop import AnswerLoop

    made = config(tmp_path)
    write_agent_loops(made, tmp_path)
    loops = OmegaConf.load(made.actor_rollout_ref.rollout.agent.agent_loop_config_path)
    assert {loop.name: get_class(loop._target_) for loop in loops} == {
        AGENT: rollout.GameAgentLoop,
        question_dataset.AGENT: AnswerLoop,
    }


def test_a_validation_set_may_hold_rows_of_several_kinds() -> None:
    """tests/test_validating.py plays one through verl's own batches and worker; here is what it takes for granted."""
    in_order(
        AgentLoopWorker._run_agent_loop,
        "agent_loop_config = _agent_loop_registry[agent_name]",
        "trainer_config=DictConfigWrap(config=self.config)",
        of_ours="QuestionAgentLoop, which is named by its rows' agent_name and reads the run's config",
    )
    in_order(
        PPOTrainer._validate,
        "for batch_dict in self.val_dataloader:",
        'batch_dict.get( "__rollout_n__"',
        "self.agent_loop_manager.generate_sequences(batch)",
        "self.replay_buffer.sample(",
        "return self._val_metrics_update(",
        of_ours="SpiralTrainer._val_metrics_update, which takes all answers of a validation at once",
    )
    assert "self.val_dataset = create_rl_dataset(" in body(PPOTrainer._init_dataloader)


def test_prompts_without_rows_are_done_all_the_same() -> None:
    """An answer leaves none."""
    in_order(
        TQ_WORKER._run_prompt, "_settle_session_tasks(tasks)", 'status = "finished"', of_ours="QuestionAgentLoop.run"
    )
    assert 'for key, tag in partition_snapshot.items(): uid = key.split("_")[0] if uid in selected:' in body(
        ReplayBuffer._materialize_batch
    ), "QuestionAgentLoop.run"


def test_the_engine_is_told_whether_log_probabilities_are_wanted() -> None:
    assert 'sampling_params.pop("logprobs", False)' in body(vllm_async_server.vLLMHttpServer.generate), (
        "QuestionAgentLoop, which wants none"
    )


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_loaded_from_files_by_rank() -> None:
    assert parameters(TrainingWorker.load_checkpoint) == [
        "self",
        "local_path",
        "hdfs_path",
        "del_local_after_load",
    ]
    text = inspect.getsource(fsdp_checkpoint_manager.FSDPCheckpointManager.load_checkpoint)
    files = set(re.findall(r'f"(\w+?)_world_size_\{self.world_size\}_rank_\{self.rank\}.pt"', text))
    assert files == {"model", "optim", "extra_state"}, "travelling.readable makes these files"
    assert "self.optimizer.load_state_dict(" in text and "self.lr_scheduler.load_state_dict(" in text, "as_asked"
    built = inspect.getsource(FSDPEngine._build_model_optimizer)
    assert "self.optimizer = optimizer" in built and "self.lr_scheduler = lr_scheduler" in built, "as_asked"
    for schedule in (
        torch_functional.get_constant_schedule_with_warmup,
        torch_functional.get_cosine_schedule_with_warmup,
    ):
        assert "return LambdaLR(optimizer, lr_lambda, last_epoch)" in inspect.getsource(schedule), "as_asked"


def test_trackers_are_made_by_name_and_asked_for_what_they_go_on_with() -> None:
    """training/trackers.going_on."""
    made = inspect.getsource(tracking.Tracking.__init__)
    asked = parameters(tracking.Tracking.__init__)[1:]
    assert asked == ["project_name", "experiment_name", "default_backend", "config"]
    assert "if context_vars.current_run.get() is None:" in made and 'os.environ.get("MLFLOW_RUN_ID")' in made
    assert "mlflow.log_params(_compute_mlflow_params_from_objects(config))" in made
    assert tracking._compute_mlflow_params_from_objects(None) == {}
    assert 'if "mlflow" in loggers:' in inspect.getsource(tracking.Tracking.finish), "an emptied logger ends no run"
    assert "self.writer = SummaryWriter(" in inspect.getsource(tracking._TensorboardAdapter), "trackers.forget_later"


def test_a_checkpoint_is_named_the_latest_when_all_else_is_written() -> None:
    in_order(
        PPOTrainer._save_checkpoint,
        'f"global_step_{self.global_steps}"',
        "self.actor_rollout_wg.save_checkpoint(",
        '"data.pt"',
        "torch.save(self.train_dataloader.state_dict()",
        f'"{TRACKER}"',
        "f.write(str(self.global_steps))",
        "self.checkpoint_callback.on_save(",
        of_ours="SpiralTrainer._save_checkpoint, which lets verl write into saving.CheckpointFolder's unfinished/",
    )
    # so that another folder for the time of a save is all that it takes
    assert body(PPOTrainer._save_checkpoint).count("self.config.trainer.default_local_dir") == 2


def test_an_older_checkpoint_that_is_gone_already_is_passed_over(tmp_path: Any) -> None:
    """verl's workers remember checkpoints by paths in unfinished/; which of them stay is our folder's matter."""
    manager: Any = object.__new__(BaseCheckpointManager)
    manager.previous_saved_paths = [str(tmp_path / "unfinished/global_step_1/actor")] * 3
    manager.ensure_checkpoint_capacity(2)
    manager.register_checkpoint("new", 1)
    assert manager.previous_saved_paths == ["new"]


def test_the_latest_checkpoint_is_the_trackers(tmp_path: Any) -> None:
    (tmp_path / "global_step_20").mkdir()
    (tmp_path / TRACKER).write_text("20")
    assert find_latest_ckpt_path(str(tmp_path)) == str(tmp_path / "global_step_20")


def test_loading_sets_the_step_and_the_datasets_place() -> None:
    in_order(
        PPOTrainer._load_checkpoint,
        "self.global_steps = 0",
        "find_latest_ckpt_path(checkpoint_folder)",
        'self.global_steps = int(global_step_folder.split("global_step_")[-1])',
        "self.train_dataloader.load_state_dict(",
        of_ours="SpiralTrainer._load_checkpoint",
    )


# -- the config --------------------------------------------------------------------------------------------------------


def test_the_keys_that_we_set_are_verls() -> None:
    """A key that verl renames would be set in vain; composing refuses none, because ours are new keys too."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        verls = compose("ppo_trainer")
    assert "enable_sleep_mode" in {field.name for field in dataclasses.fields(RolloutConfig)}, (
        "config/hardware/cpu.yaml"
    )
    for key in (
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        "actor_rollout_ref.actor.ppo_epochs",
        "actor_rollout_ref.actor.loss_agg_mode",
        "actor_rollout_ref.actor.loss_scale_factor",
        "actor_rollout_ref.actor.clip_ratio",
        "actor_rollout_ref.actor.use_kl_loss",
        "actor_rollout_ref.actor.use_dynamic_bsz",
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.optim.betas",
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.rollout.free_cache_engine",
        "actor_rollout_ref.rollout.enable_chunked_prefill",
        "actor_rollout_ref.rollout.calculate_log_probs",
        "actor_rollout_ref.rollout.val_kwargs.temperature",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path",
        "actor_rollout_ref.rollout.agent.default_agent_loop",
        "actor_rollout_ref.rollout.agent.num_workers",
        "actor_rollout_ref.model.external_lib",
        "algorithm.adv_estimator",
        "algorithm.gamma",
        "algorithm.use_kl_in_reward",
        "data.train_batch_size",
        "data.gen_batch_size",
        "data.shuffle",
        "data.custom_cls.path",
        "data.max_prompt_length",
        "trainer.v1.trainer_mode",
        "trainer.total_training_steps",
        "trainer.resume_mode",
        "trainer.resume_from_path",
        "trainer.max_actor_ckpt_to_keep",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units",
        "ray_kwargs.ray_init",
    ):
        holder, name = key.rsplit(".", 1)
        assert name in OmegaConf.select(verls, holder), f"verl's config has no {key}, which we set"
    assert main_ppo.__name__ == "verl.trainer.main_ppo"


def test_a_worker_scores_in_the_precision_of_training() -> None:
    """``score_answers`` enters the engine's ``eval_mode`` and autocast as verl's own passes do; the attention of a
    model of transformers is looked up by its config at each pass."""
    assert "self._autocast_dtype" in inspect.getsource(FSDPEngine)
    assert parameters(FSDPEngine.eval_mode) == ["self", "kwargs"]
    from transformers.models.qwen3 import modeling_qwen3

    assert "self.config._attn_implementation" in inspect.getsource(modeling_qwen3.Qwen3Attention.forward)
    assert "logits_to_keep" in parameters(modeling_qwen3.Qwen3ForCausalLM.forward)
