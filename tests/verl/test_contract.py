"""What the recipe relies on in verl: an upgrade of verl fails here, and names what of the recipe leans on the part.

Much of it is private in verl, and some can only be seen in its source: the order of calls, and keys.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from transfer_queue.storage.managers.base import StorageManagerFactory
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopManager, AgentLoopOutput, AgentLoopWorker
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.v1 import agent_loop_tq, get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator
from verl.utils import fsdp_utils
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.metric.utils import AggregationType, Metric
from verl.utils.tracking import Tracking
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerManager
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils import losses

from recipe.spiral.rollout import turns_to_rows
from recipe.spiral.rollouts.packed_storage import PackedStorageManager
from recipe.spiral.trainer import NO_ROWS, SpiralTrainer, trainer_class
from recipe.spiral.training.game_buffer import GameBuffer
from recipe.spiral.training.in_flight import InFlight
from recipe.spiral.training.metrics import training_metrics
from recipe.spiral.workers.mini_batch_worker import MiniBatchWorker
from recipe.spiral.workers.policy_worker import PolicyWorker
from recipe.spiral.workers.reference import ReferenceWorker
from tests.made import record, turn

#: The classes under Ray's actor classes.
TQ_WORKER: Any = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
TASK_RUNNER: Any = TaskRunnerV1.__ray_metadata__.modified_class


def parameters(function: Callable[..., Any]) -> list[str]:
    """Without the one that Ray adds to the methods of a class of which there has been an actor."""
    return [name for name in inspect.signature(function).parameters if name != "_ray_trace_ctx"]


def body(function: Any) -> str:
    """A function's source on one line, without its docstring."""
    text = inspect.getsource(function)
    return " ".join(re.sub(r'"""(?s:.*?)"""', "", text, count=1).split())


def in_order(function: Any, *parts: str) -> None:
    """These parts stand in the function's source, in this order."""
    text, position = body(function), 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"{function.__qualname__} no longer has {part!r} there"
        position = found + len(part)


def test_the_version_is_the_one_that_was_read() -> None:
    assert importlib.metadata.version("verl") == "0.9.1", "another verl: read its changes before moving this test on"


#: The methods that SpiralTrainer and InFlight override or call, with verl's parameters after self.
TRAINERS = {
    "prepare_step": "",
    "fit": "agent_loop_manager",
    "get_llm_client": "",
    "on_init_end": "",
    "on_train_begin": "",
    "on_step_begin": "",
    "on_sample_end": "",
    "step": "metrics timing_raw",
    "on_step_end": "",
    "on_train_end": "",
    "_step_once": "metrics timing_raw sample_batch_size",
    "_init_resource_pool_mgr": "",
    "_balance_batch": "batch metrics logging_prefix keep_minibatch",
    "_compute_advantage": "batch metrics",
    "_update_actor": "batch metrics",
    "_update_critic": "batch metrics",
    "_compute_metrics": "batch metrics timing_raw global_steps epoch",
    "_validate": "",
    "_val_metrics_update": "data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts",
    "_maybe_log_val_generations": "inputs outputs scores",
    "_save_checkpoint": "",
    "_load_checkpoint": "",
    "_add_async_warmup_batches": "num_warmup_batches",
    "_submit_batch_to_rollout": "batch",
    "_reissue_inflight_prompts": "partition_id",
    "_add_prompts_to_generate": "num_prompts",
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_hook_of_the_trainer_has_the_parameters_that_it_is_overridden_with(name: str) -> None:
    assert parameters(getattr(PPOTrainer, name))[1:] == TRAINERS[name].split()


def test_what_we_define_is_overridden_on_purpose_or_ours_alone() -> None:
    verls = set(dir(PPOTrainer)) | set(re.findall(r"self\.(\w+)", inspect.getsource(PPOTrainer)))
    ours = {name for one in (SpiralTrainer, InFlight) for name in vars(one) if not name.startswith("__")}
    attributes = {"state", "launched", "current", "opponents", "_stopped_by", "_trackers"}
    assert not (ours | attributes) & verls - set(TRAINERS) - {"config", "logger"}


#: Of others' functions: what stands in them, in this order; and what of ours leans on it.
SOURCES: list[tuple[Any, ...]] = [
    (
        "the task runner",
        TASK_RUNNER.run,
        "get_trainer_cls(config.trainer.v1.trainer_mode)",
        "self.trainer = trainer_cls(config=config)",
        "self.trainer.init()",
        "self.init_agent_loop_manager()",
        "self.trainer.fit(self.agent_loop_manager)",
    ),
    ("the client, which a worker has later", AgentLoopWorker.__init__, "self.llm_client = llm_client"),
    ("run_ppo", run_ppo, "ray.init(", "runner = task_runner_class.remote()", "runner.run.remote(config)"),
    # -- the trainer
    (
        "a step",
        PPOTrainer._step_once,
        "self.replay_buffer.sample(",
        "self.on_sample_end()",
        "batch = self._balance_batch(batch, metrics=metrics)",
        "self._compute_old_log_prob(batch",
        "self._compute_advantage(batch, metrics=metrics)",
        "self._update_actor(batch, metrics=metrics)",
    ),
    (
        "the order of a run",
        PPOTrainer.fit,
        "self.agent_loop_manager = agent_loop_manager",
        "self.logger = Tracking(",
        "self._validate()",
        "self.global_steps += 1",
        "self._reissue_inflight_prompts()",
        "self.on_train_begin()",
        "self.global_steps <= self.total_training_steps:",
        "is_last_step = self.global_steps >= self.total_training_steps",
        "self.on_step_begin()",
        "self.step(metrics, self.timing_raw)",
        "self._save_checkpoint()",
        "self.on_step_end()",
        "self._validate()",
        "self._compute_metrics(batch, metrics, self.timing_raw, global_steps=self.global_steps",
        "tq.kv_clear(keys=batch.keys",
        "self.logger.log(data=metrics",
    ),
    (
        "SpiralTrainer._init_resource_pool_mgr",
        PPOTrainer._setup,
        "self._init_resource_pool_mgr()",
        "cls=self.role_worker_mapping[actor_role]",
        "self.actor_rollout_wg.init_model()",
        "self._load_checkpoint()",
    ),
    ("prepare_step", PPOTrainer.step, "self.prepare_step()", "self._step_once("),
    ("games are launched", PPOTrainer._submit_batch_to_rollout, "self.agent_loop_manager.generate_sequences(batch)"),
    (
        "games are launched again",
        PPOTrainer._reissue_inflight_prompts,
        'tag.get("status") in ("pending", "running")',
        "batch = tq.kv_batch_get(keys=inflight_uids, partition_id=partition_id)",
        "self.agent_loop_manager.generate_sequences(batch)",
    ),
    (
        "_balance_batch, in whose place ours is",
        PPOTrainer._balance_batch,
        "worker_group._query_dispatch_info(role)",
        "dp_size = max(dp_rank_mapping) + 1",
        "upsample_batch_to_divisible_size(batch, batch_multiple, self.tokenizer.eos_token_id)",
        "batch.reorder(",
        "metrics.update(global_balance_stats)",
        "return batch",
    ),
    (
        "the estimator of advantages",
        PPOTrainer._compute_advantage,
        'data.batch["token_level_rewards"] = data.batch["token_level_scores"]',
        "compute_rollout_correction_and_add_to_batch(",
        "compute_advantage_for_multi_trajectories(",
        "adv_estimator=self.config.algorithm.adv_estimator",
        'fields = ["advantages", "returns"]',
        'fields.append("response_mask")',
        "tq.kv_batch_put(keys=batch.keys",
    ),
    (
        "the update",
        PPOTrainer._update_actor,
        '"mini_batch_size": ppo_mini_batch_size',
        "batch.extra_info.update(extra_info)",
        "self.actor_rollout_wg.update_actor(batch)",
    ),
    (
        "validation",
        PPOTrainer._validate,
        "for batch_dict in self.val_dataloader:",
        "self.agent_loop_manager.generate_sequences(batch)",
        "self.replay_buffer.sample(",
        "return self._val_metrics_update(",
    ),
    (
        "a checkpoint",
        PPOTrainer._save_checkpoint,
        'f"global_step_{self.global_steps}"',
        "self.actor_rollout_wg.save_checkpoint(",
        '"data.pt"',
        "f.write(str(self.global_steps))",
        "self.checkpoint_callback.on_save(",
    ),
    (
        "a resume",
        PPOTrainer._load_checkpoint,
        "find_latest_ckpt_path(checkpoint_folder)",
        "self.global_steps = int(",
        "self.train_dataloader.load_state_dict(",
    ),
    # -- the replay buffer
    ("the pause", ReplayBuffer._wait_for_next_poll, "time.sleep(self.poll_interval)"),
    ("games of a channel of their own", ReplayBuffer._sync_metadata_from_transfer_queue, 'tag.get("is_prompt"'),
    ("NO_ROWS", ReplayBuffer.sample, NO_ROWS, "raise RuntimeError(message)", "return self._materialize_batch("),
    (
        "TurnBuffer",
        ReplayBuffer._materialize_batch,
        "tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)",
        "if uid in selected:",
    ),
    (
        "GameBuffer, whose sample stands in place of this one",
        ReplayBufferAsync.wait_for_sampleable,
        "self._sync_metadata_from_transfer_queue()",
        "self.refill_fn(len(evicted_uids))",
        "self._wait_for_next_poll(partition_id, last_debug_time)",
    ),
    ("GameBuffer", ReplayBufferAsync.sample, "return self._materialize_batch("),
    # -- the rollout
    (
        "GameManager",
        AgentLoopManager._init_agent_loop_workers,
        "self.agent_loop_workers.append(",
        "self.agent_loop_workers_class.options(",
        ".remote( self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles, )",
    ),
    (
        "GameManager.generate_sequences",
        agent_loop_tq.AgentLoopManagerTQ.generate_sequences,
        "prompts.chunk(len(self.agent_loop_workers))",
        "ray.get(",
        "worker.generate_sequences.remote(chunk)",
    ),
    (
        "RolloutWorker._run_prompt",
        TQ_WORKER.generate_sequences,
        "temperature=",
        "top_p=",
        "top_k=",
        "logprobs=config.calculate_log_probs",
        "self._run_prompt(",
    ),
    (
        "RolloutWorker._run_prompt",
        TQ_WORKER._run_prompt,
        'prompt.pop("__rollout_n__"',
        "for i in range(n):",
        "session_id=i, **prompt",
        '"failure"',
        '"finished"',
    ),
    (
        "RolloutWorker._run_agent_loop",
        AgentLoopWorker._run_agent_loop,
        "with rollout_trace_attr(",
        "agent_loop = hydra.utils.instantiate( config=agent_loop_config, "
        "trainer_config=DictConfigWrap(config=self.config), server_manager=self.llm_client, "
        "tokenizer=self.tokenizer, processor=self.processor, hf_model_type=self.hf_model_type, "
        "dataset_cls=self.dataset_cls, data_config=DictConfigWrap(self.config.data), "
        "tools=ToolListWrap(self.tools), )",
        "await agent_loop.run(sampling_params, **kwargs)",
        'await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)',
    ),
    ("names of rows", TQ_WORKER._agent_loop_postprocess, 'keys.append(f"{uid}_{session_id}_{i}")'),
    (
        "GameAgentLoop",
        AgentLoopBase.__init__,
        "self.config = trainer_config.config",
        "self.rollout_config = ",
        "self.server_manager = server_manager",
        "self.tokenizer = tokenizer",
        "self.apply_chat_template_kwargs = ",
    ),
    (
        "client.Parts",
        FullyAsyncLLMServerClient.generate,
        "await super().generate(",
        "prompt_ids=prompt_ids + final_output.token_ids",
        "sampling_params=sampling_params",
        "**kwargs",
    ),
    ("PackedStorageManager", AsyncSimpleStorageManager.put_data, "self._select_by_positions(data[f],"),
    ("PackedStorageManager", AsyncSimpleStorageManager.get_data, "self._pack_field_values(v)"),
    # -- the workers
    (
        "MiniBatchWorker",
        TrainingWorker.train_mini_batch,
        'mini_batch_size = tu.pop(data, key="mini_batch_size"',
        "mini_batch_size % self.engine.get_data_parallel_size() == 0",
        "update_lr_scheduler=batch_idx == total_num_iterations - 1",
        "self.train_batch(mini_batch_td)",
        '[tu.get(output, "metrics") for output in output_lst]',
    ),
    ("MiniBatchWorker", TrainingWorker.train_batch, "loss_function=self.loss_fn", "lr_scheduler_step()"),
    (
        "MiniBatchWorker",
        losses.ppo_loss,
        'config.global_batch_info["global_batch_size"] = data["global_batch_size"]',
        "loss_scale_factor",
    ),
    (
        "ReferenceWorker",
        ActorRolloutRefWorker.init_model,
        "self.ref = self.ref_worker_cls(config=ref_training_config)",
        "self.actor = self.actor_worker_cls(config=actor_training_config)",
    ),
    (
        "ReferenceWorker.compute_log_prob",
        PPOTrainer._compute_ref_log_prob,
        'metadata["no_lora_adapter"] = True',
        "self.actor_rollout_wg.compute_log_prob(batch)",
    ),
    ("SpiralTrainer._compute_values", PPOTrainer._compute_values, "batch.extra_info.update(", "infer_batch(batch)"),
    (
        "reference.local_shards",
        FSDPParamGroup._register_state_dict_hooks,
        "self._to_sharded()",
        "register_state_dict_pre_hook(to_sharded_hook)",
    ),
    ("reference.local_shards", fsdp_utils.offload_fsdp2_model_to_cpu, 'model.to("cpu", non_blocking=True)'),
    (
        "PolicyWorker.save_snapshot",
        ActorRolloutRefWorker.update_weights,
        "self.actor.engine.get_per_tensor_param( layered_summon=self.layered_summon, base_sync_done=True )",
        "if self.actor.engine.is_param_offload_enabled:",
        'self.actor.engine.to("cpu", model=True, optimizer=False, grad=False)',
    ),
    ("actor.optim.clip_grad", FSDPEngine.optimizer_step, "max_norm=self.optimizer_config.clip_grad"),
]


@pytest.mark.parametrize("entry", SOURCES, ids=lambda entry: entry[1].__name__)
def test_the_source_says(entry: tuple[Any, ...]) -> None:
    _, function, *parts = entry
    in_order(function, *parts)


def test_verls_own_balancing_does_nothing_else() -> None:
    text = body(PPOTrainer._balance_batch)
    assert text.count("metrics.update(") == 1 and "tq." not in text and "self.config" not in text


def test_the_modes_name_is_compared_literally() -> None:
    """Why the registered class is replaced, and not another mode added."""
    assert len(re.findall(r'self\.trainer_mode [!=]= "sync"', inspect.getsource(PPOTrainer))) >= 5


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_our_trainer_stands_before_verls(mode: str) -> None:
    made = trainer_class(mode)
    ours = [one for one in made.__mro__[1:] if one.__module__.startswith("recipe.spiral")]
    assert ours[0] is (SpiralTrainer if mode == "sync" else InFlight) and issubclass(made, get_trainer_cls(mode))


@pytest.mark.parametrize("name", ["sample", "_sync_metadata_from_transfer_queue", "_wait_for_next_poll"])
def test_a_hook_of_the_buffer_has_the_parameters_that_it_is_overridden_with(name: str) -> None:
    assert parameters(getattr(GameBuffer, name)) == parameters(getattr(ReplayBufferAsync, name))
    assert inspect.signature(ReplayBuffer.__init__).parameters["poll_interval"].default == 2.0
    assert parameters(ReplayBuffer._clear_groups) == ["self", "partition_id", "uids"]


def test_the_client_is_made_by_the_last_manager_of_servers() -> None:
    assert "managers.append(standalone)" in body(PPOTrainerSeparateAsync._rollout_server_managers)
    assert parameters(LLMServerManager.get_client) == ["self", "client_cls", "kwargs"]
    ours = {"generate_as", "_ask", "_ask_policy", "_slots", "_servers", "whole"}
    assert not ours & {*dir(FullyAsyncLLMServerClient), *vars(FullyAsyncLLMServerClient({"a": 1}, None))}


def test_separate_devices_have_workers_that_only_train() -> None:
    """Each with all that ours have."""
    in_order(PPOTrainerSeparateAsync._init_resource_pool_mgr, "super()", "ray.remote(DetachActorWorker)")
    assert issubclass(PolicyWorker, DetachActorWorker)
    assert not {name for name in vars(DetachActorWorker) if name in dir(ActorRolloutRefWorker) and "__" not in name}


def test_methods_of_workers_go_to_all_ranks_as_verls_do() -> None:
    for name in ("train_mini_batch", "train_batch", "set_loss_fn"):
        verls, ours = getattr(TrainingWorker, name), getattr(MiniBatchWorker, name)
        assert parameters(verls) == parameters(ours)
        for key, value in getattr(verls, MAGIC_ATTR).items():
            mine = getattr(ours, MAGIC_ATTR)[key]
            assert mine == value or mine.keys() == value.keys(), key
    one_to_all = getattr(ActorRolloutRefWorker.save_checkpoint, MAGIC_ATTR)
    named = [getattr(ReferenceWorker, f"{what}_reference") for what in ("update", "save", "load")]
    for method in (*named, PolicyWorker.save_snapshot):
        assert getattr(method, MAGIC_ATTR) == one_to_all and method.__name__ not in dir(ActorRolloutRefWorker)
    mine, verls = (
        getattr(one.compute_log_prob, MAGIC_ATTR)["dispatch_mode"] for one in (ReferenceWorker, ActorRolloutRefWorker)
    )
    assert all(mine[part].args == verls[part].args == ("actor",) for part in ("dispatch_fn", "collect_fn"))


def test_a_row_of_padding_says_so_and_trains_nothing() -> None:
    sample = {"position_ids": torch.arange(4), "num_turns": 5, "rm_scores": torch.ones(2)}
    padded, tag = padding_utils.construct_minimal_padding_template(sample, {"status": "success", "seq_len": 4}, 2)
    assert tag["is_padding"] is True and padded["num_turns"] == 0
    assert int(padded["response_mask"].sum()) == 0 and float(padded["rm_scores"].sum()) == 0.0


def test_our_rows_are_verls_rows() -> None:
    """Through verl's own model: fields, dtypes, and the reward on the last token."""
    played = record(3, rewards=(1.0, -1.0), turns=[turn(0, 0, length=3), turn(1, 0), turn(0, 1, length=2)])
    rows = turns_to_rows(played, 0)
    assert all(isinstance(row, AgentLoopOutput) for row in rows) and {row.num_turns for row in rows} == {3}
    fields = [row.as_dict() for row in rows]
    assert [field["rm_scores"].tolist() for field in fields] == [[0.0, 0.0, 1.0], [0.0, 1.0]]
    assert {frozenset(field) for field in fields} == {frozenset(fields[0])}, "every row must have the same columns"
    assert {"token_ids", "log_probs", "stop_reason", "extra_fields"} <= set(TokenOutput.model_fields)
    assert "_" not in str(uuid.uuid4()), "verl's names of rows are split at underscores"


def test_parts_of_a_mini_batch_are_added_up_after_ranks_are_averaged() -> None:
    ranks = [Metric(AggregationType.SUM), Metric(AggregationType.SUM)]
    for metric, values in zip(ranks, ([1.0, 2.0], [3.0, 6.0]), strict=True):
        metric.extend(values)
    assert Metric.aggregate_dp(ranks) == 2.0 + 4.0


def test_metrics_of_a_step_pass_verls_aggregator_and_trackers_unchanged() -> None:
    """verl reduces metrics by parts of their names ("max", "sum", ...); of one step, that must change nothing."""
    metrics = training_metrics([record(0, rewards=(1.0, -1.0), turns=[turn(0, 0, advantage=1.0), turn(1, 0)])], [])
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics, sample_count=2)
    assert aggregator.get_aggregated_metrics() == metrics
    tracking = Tracking("project", "experiment", [])
    logged: list[Any] = []
    tracking.logger["spiral"] = SimpleNamespace(log=lambda data, step: logged.append((data, step)))
    tracking.log({"games/count": 2.0}, 3)
    assert logged == [({"games/count": 2.0}, 3)]


def test_a_checkpoint_has_the_files_that_we_look_for() -> None:
    text = inspect.getsource(fsdp_checkpoint_manager)
    for kind in ("model", "optim", "extra_state"):
        assert kind + "_world_size_{self.world_size}_rank_{self.rank}.pt" in text
    assert body(PPOTrainer._save_checkpoint).count("self.config.trainer.default_local_dir") == 2


def test_rows_are_stored_by_our_client() -> None:
    assert StorageManagerFactory._registry["SimpleStorage"] is PackedStorageManager


def test_a_worker_scores_in_the_precision_of_training() -> None:
    """What measures the policy where it is enters the engine's ``eval_mode`` and autocast as verl's own passes do."""
    assert "self._autocast_dtype" in inspect.getsource(FSDPEngine)
    assert parameters(FSDPEngine.eval_mode) == ["self", "kwargs"]
