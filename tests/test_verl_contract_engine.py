"""What the opponents' engines, the adapters and the snapshots rely on in verl and vLLM; see test_verl_contract.py."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf
from ray.actor import ActorClass
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout import router
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient, LLMServerManager
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.vllm_rollout import utils as vllm_utils
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor, RequestState

from recipe.spiral.processes.engine_failure import DIED, LAST_WORDS
from recipe.spiral.runtime.direct_client import DirectClient, NoRouter
from recipe.spiral.workers.engine.adapters import FIRST_ID
from recipe.spiral.workers.engine.slot_server import SlotReplica
from recipe.spiral.workers.engine.slots import FIRST_RANK
from recipe.spiral.workers.engine.vllm import MOST_CALLS, VLLMReplica, VLLMServer
from recipe.spiral.workers.snapshot import SnapshotWorker
from tests.test_verl_contract import body, in_order, parameters

NO_ROUTER = Path(inspect.getfile(DirectClient)).with_name("no_router.yaml")

# -- servers that start early ------------------------------------------------------------------------------------------


def test_an_early_server_is_what_verl_makes_later() -> None:
    in_order(
        vLLMReplica.launch_servers,
        'name = f"{prefix}server_{self.replica_rank}_{node_rank}{self.name_suffix}"',
        '**{var: "1" for var in get_platform().ray_noset_envvars()}',
        "**get_platform().rollout_env_vars()",
        "server = self.server_class.options(",
        'runtime_env={"env_vars": env_vars}',
        "name=name",
        "max_concurrency=self.max_concurrency",
        of_ours="engine.vllm.start_servers, which does the same before the policy is there",
    )
    assert body(vLLMReplica.launch_servers).count("self.server_class") == 1, "EarlyActors has one way to make an actor"
    assert 'return "vllm_"' in body(vLLMReplica._get_server_name_prefix)
    assert "num_replicas = world_size // rollout_world_size" in body(LLMServerManager._initialize_llm_servers)


def test_a_server_takes_so_many_calls_at_a_time_as_its_replica_says() -> None:
    """verl's number is for responses that run. More may wait where the gate is closed, until a call opens it."""
    limit = inspect.getsource(RolloutReplica.max_concurrency.fget)  # type: ignore[attr-defined]
    assert "return max(1000, self.config.max_num_seqs + CONTROL_METHOD_CONCURRENCY)" in limit
    assert "await self._resume_event.wait()" in body(vLLMHttpServer._park_until_admitted)
    assert all(object.__new__(replica).max_concurrency == MOST_CALLS for replica in (VLLMReplica, SlotReplica))


def test_the_router_is_the_one_that_our_file_names() -> None:
    module, name = OmegaConf.load(NO_ROUTER).router_class.rsplit(".", 1)
    assert getattr(importlib.import_module(module), name) is NoRouter and isinstance(NoRouter, ActorClass)
    assert router.get_router_handle({}, str(NO_ROUTER)) is None
    in_order(
        router._create_plugin_extension,
        "yaml_config = _load_router_yaml(router_config_path)",
        'router_class = yaml_config.get("router_class", None)',
        "ray_cls = cls if isinstance(cls, ray.actor.ActorClass) else ray.remote(cls)",
        "return ray_cls.remote(servers, yaml_config)",
        of_ours="NoRouter, which starts no actor in the place of the load balancer",
    )
    path = 'router_config_path=getattr(self.rollout_config, "router_config_path", None)'
    assert path in body(LLMServerManager._init_global_load_balancer)
    for method in ("add_replicas_to_balancer", "remove_replicas_from_balancer"):
        in_order(
            getattr(PPOTrainerSeparateAsync, method),
            "if not self._enable_hybrid_replicas:",
            "return",
            "global_load_balancer",
            of_ours="NoRouter, where there is no balancer to ask; checks refuse enable_switch",
        )


def test_an_engine_says_when_a_request_ended() -> None:
    handler = body(AsyncLLM._run_output_handler)
    assert "output_processor = self.output_processor" in handler, "Ends, which is there before the first request"
    assert "output_processor.process_outputs( outputs_slice, outputs.timestamp, iteration_stats )" in handler, "Ends"
    in_order(
        OutputProcessor.process_outputs,
        "self.request_states.get(req_id)",
        "finish_reason = engine_core_output.finish_reason",
        of_ours="Ends",
    )
    assert "self.external_req_id = external_req_id" in body(RequestState.__init__), "Ends"
    assert "request.external_req_id = request.request_id" in body(InputProcessor.assign_request_id), "Ends"
    assert "time.monotonic()" in inspect.getsource(EngineCoreOutputs), "Ends, whose clock is the same"


def test_an_engine_that_died_says_so_and_wrote_why_if_it_could() -> None:
    assert str(EngineDeadError()).startswith(DIED)
    assert f'logger.exception("{LAST_WORDS}.")' in body(EngineCoreProc.run_engine_core), "engine_failure"
    assert isinstance(AsyncLLM.errored, property) and isinstance(AsyncLLM.dead_error, property), "engine_answers"


def test_an_engine_takes_tokens_without_rendering() -> None:
    """In the form that vLLM makes of them itself; verl gives them as keywords."""
    from vllm.inputs.preprocess import InputPreprocessor

    tokens = body(InputPreprocessor._process_tokens)
    assert 'if multi_modal_data := parsed_content.get("multi_modal_data"):' in tokens
    assert "inputs = tokens_input(prompt_token_ids)" in tokens
    assert 'if isinstance(prompt, dict) and "type" in prompt:' in body(InputProcessor.process_inputs)
    in_order(
        vLLMHttpServer.generate,
        'prompt_kwargs = {"prompt_token_ids": prompt_ids, "multi_modal_data": multi_modal_data}',
        "self.engine.generate( prompt=prompt,",
        of_ours="runtime.server",
    )


# -- slots -------------------------------------------------------------------------------------------------------------


def test_a_replica_asks_its_workers_where_they_are_and_no_more() -> None:
    text = body(vLLMReplica.launch_servers)
    assert text.count("worker.__ray_call__.remote(") == 1, "SlotReplica.launch_on"
    in_order(
        vLLMReplica.launch_servers,
        "len(self.workers) == self.world_size",
        "self.server_class.options(",
        "rollout_mode=self.rollout_mode",
        "self.servers.append(server)",
        of_ours="SlotReplica",
    )
    in_order(
        RolloutReplica.init_hybrid,
        "self.rollout_mode = RolloutMode.HYBRID",
        "self.workers = worker_group.workers[",
        "await self.launch_servers()",
        of_ours="SlotReplica.launch_on, which does the same with workers of its choice",
    )


def test_the_opponents_names_and_sockets_are_not_the_policys() -> None:
    assert 'name = f"{prefix}server_{self.replica_rank}_{node_rank}{self.name_suffix}"' in body(
        vLLMReplica.launch_servers
    )
    assert parameters(RolloutReplica.__init__)[-1] == "name_suffix", "SlotEngine.start"
    in_order(
        RolloutReplica.__init__,
        "self.world_size = (",
        "self.config.tensor_model_parallel_size",
        of_ours="SlotEngine.start, which checks the memory with the opponents' own settings",
    )
    assert 'os.environ["VERL_REPLICA_RANK"] = str(replica_rank)' in body(vLLMHttpServer.__init__)
    handle = body(vllm_utils.vLLMColocateWorkerExtension._get_zmq_handle)
    assert "-replica-{replica_rank}-" in handle, "slots.FIRST_RANK keeps sockets apart"
    assert "replica_rank=start_rank + replica_rank" in body(LLMServerManager._initialize_llm_servers)
    assert inspect.signature(LLMServerManager.__init__).parameters["start_rank"].default == 0 < FIRST_RANK


def test_a_slot_sleeps_as_a_hybrid_server_and_forgets_its_weights() -> None:
    in_order(
        vLLMHttpServer.sleep,
        "not self.config.free_cache_engine",
        "self.rollout_mode == RolloutMode.HYBRID",
        "await self._sleep_hybrid()",
        of_ours="SlotServer.sleep",
    )
    assert "self.engine.sleep(level=self._resolve_sleep_level())" in body(vLLMHttpServer._sleep_hybrid)
    assert "await self.engine.wake_up(tags=tags or self._get_wake_up_tags())" in body(vLLMHttpServer.wake_up)
    assert "reject_request" in parameters(vLLMHttpServer.abort_all_requests), "SlotEngine.sleep"


def test_our_names_are_not_verls() -> None:
    ours = {"load", "loaded", "_name", "busy", "set_adapters"}
    verls = set(dir(vLLMHttpServer))
    assert not ours & verls, "the server has a method of that name now"
    source = inspect.getsource(vLLMHttpServer)
    assert not [name for name in ours if f"self.{name} " in source]
    assert parameters(vLLMHttpServer.generate)[:4] == ["self", "prompt_ids", "sampling_params", "request_id"]
    assert parameters(VLLMServer.generate)[:4] == parameters(vLLMHttpServer.generate)[:4]
    assert "adapter" not in parameters(vLLMHttpServer.generate), "verl can choose an adapter itself now"


def test_vllm_reloads_weights_from_a_folder() -> None:
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.gpu_worker import Worker

    assert hasattr(Worker, "reload_weights") and hasattr(DefaultModelLoader, "get_all_weights")
    assert "weights_path" in parameters(GPUModelRunner.reload_weights)
    text = body(GPUModelRunner.reload_weights)
    assert "logger.warning(" in text and "raise ValueError" not in text, (
        "vLLM may refuse weights that are not whole by itself now: model_files.unfit"
    )


def test_vllm_reloads_weights_on_a_cpu_too() -> None:
    cpu_worker = pytest.importorskip("vllm.v1.worker.cpu_worker")
    from vllm.v1.worker.gpu_worker import Worker

    assert issubclass(cpu_worker.CPUWorker, Worker)


# -- adapters ----------------------------------------------------------------------------------------------------------


def test_verl_looks_what_is_loaded_and_then_generates_with_its_engine() -> None:
    in_order(
        vLLMHttpServer.generate,
        "if self.lora_as_adapter:",
        "VLLM_LORA_INT_ID in await self.engine.list_loras()",
        "generator = self.engine.generate(",
        "lora_request=lora_request",
        "try: async for output in generator:",
        "finally: if not admitted: self._admitting -= 1",
        of_ours="adapters.ChoosingEngine, which raises within the iteration",
    )
    assert body(vLLMHttpServer.generate).count("self.engine.") == 2, "ChoosingEngine sees all of a request"


def test_verl_sets_the_limits_of_lora_after_our_settings() -> None:
    in_order(
        vLLMHttpServer.launch_server,
        "**engine_kwargs,",
        '"max_loras": 1,',
        '"max_lora_rank": get_vllm_max_lora_rank(lora_rank)',
        "args.update(lora_args)",
        "server_args = parser.parse_args(args=server_args)",
        "await self.run_server(server_args)",
        of_ours="VLLMServer.run_server, which puts them back",
    )
    assert parameters(vLLMHttpServer.run_server) == ["self", "args"]
    in_order(
        vLLMHttpServer.run_server,
        "AsyncEngineArgs.from_cli_args(args)",
        "self.engine = engine_client",
        of_ours="VLLMServer.run_server, which wraps the engine",
    )
    assert isinstance(vLLMHttpServer.lora_as_adapter, property)
    assert parameters(vLLMHttpServer._get_engine_kwargs_key) == ["self"]


def test_the_policys_adapter_is_there_before_anybody_asks_for_it() -> None:
    """ChoosingEngine refuses what would be answered without."""
    of_ours = "adapters.ChoosingEngine"
    in_order(PPOTrainerSync.on_init_end, "self.checkpoint_manager.update_weights(", of_ours=of_ours)
    in_order(
        PPOTrainer.fit,
        "self._validate()",
        "self.on_train_begin()",
        "self.on_step_begin()",
        "self.on_step_end()",
        "self._validate()",
        of_ours=of_ours,
    )
    in_order(PPOTrainer.init, "self._setup()", "self.on_init_end()", of_ours=of_ours)
    assert "_validate(" not in body(PPOTrainer._setup) and "generate_sequences(" not in body(PPOTrainer._setup)
    in_order(
        PPOTrainer._validate,
        "self.checkpoint_manager.sleep_replicas()",
        "self.checkpoint_manager.update_weights()",
        of_ours=of_ours,
    )


def test_a_sync_takes_out_the_policys_adapter_alone() -> None:
    text = inspect.getsource(vllm_utils.vLLMColocateWorkerExtension)
    assert text.count("remove_lora(") == text.count("remove_lora(VLLM_LORA_INT_ID)") == 1
    assert vllm_utils.VLLM_LORA_INT_ID < FIRST_ID


def test_vllms_workers_are_extended_by_ours() -> None:
    from vllm.lora import model_manager
    from vllm.lora.worker_manager import WorkerLoRAManager
    from vllm.v1.worker import lora_model_runner_mixin

    extension = get_class(VLLMServer._get_worker_extension_cls(Any))
    assert issubclass(extension, get_class(vLLMHttpServer._get_worker_extension_cls(Any)))
    assert "self._get_worker_extension_cls()" in body(vLLMHttpServer.launch_server)
    assert "self.lora_manager = " in inspect.getsource(lora_model_runner_mixin), "WorkerExtension"
    assert "self._adapter_manager" in inspect.getsource(WorkerLoRAManager)
    assert "self._last_mapping != mapping" in body(model_manager.LoRAModelManager.set_adapter_mapping)


def test_weights_are_woken_under_their_tag() -> None:
    assert 'self.rollout.resume(tags=["weights"])' in body(ActorRolloutRefWorker.update_weights), "VLLMServer.wake_up"
    assert parameters(vLLMHttpServer.wake_up) == ["self", "tags"]


def test_vllms_adapters() -> None:
    from vllm.lora.request import LoRARequest
    from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager
    from vllm.outputs import RequestOutput
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine.async_llm import AsyncLLM

    for method in ("remove_lora", "list_loras", "reset_prefix_cache", "collective_rpc"):
        assert inspect.iscoroutinefunction(getattr(AsyncLLM, method)), f"engine.adapters calls {method}"
    assert {"lora_name", "lora_int_id", "lora_path"} <= set(LoRARequest.__struct_fields__)
    assert "request.lora_request.lora_name" in inspect.getsource(kv_cache_utils), (
        "what was computed is found by an adapter's name, which is one member's alone"
    )
    assert "self.add_adapter(lora)" in body(LRUCacheWorkerLoRAManager._apply_adapters), "read at its first request"
    assert "remove_oldest_adapter()" in body(LRUCacheWorkerLoRAManager.add_adapter), "opponent_engines.make_room"
    assert "lora_request" in parameters(RequestOutput.__init__), "ChoosingEngine asks an answer whose it is"


# -- the client --------------------------------------------------------------------------------------------------------


def test_the_client_hands_what_it_does_not_know_to_the_server() -> None:
    in_order(
        LLMServerClient.generate,
        "server.generate.remote(",
        "request_id=self._vllm_request_id(request_id)",
        "**kwargs,",
        of_ours="DirectClient.generate, which hands over the adapter's name",
    )
    assert parameters(LLMServerClient._vllm_request_id) == ["self", "request_id"]
    assert issubclass(FullyAsyncLLMServerClient, LLMServerClient)
    assert "final_output = TokenOutput(" in body(FullyAsyncLLMServerClient.generate), (
        "the asynchronous modes' client may keep extra fields now: DirectClient._ask_opponent"
    )


def test_the_rest_of_the_client_is_verls() -> None:
    ours = {"generate_as", "_ask", "_ask_opponent", "_request", "_slots", "_servers", "whole", "servers", "stay"}
    assert not ours & {*dir(FullyAsyncLLMServerClient), *vars(FullyAsyncLLMServerClient({"a": 1}, None))}
    client = DirectClient({"a": 1})
    assert client.config == {"a": 1} and client._acquire_server.__func__ is LLMServerClient._acquire_server


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_weights_are_gathered_for_a_snapshot_as_for_a_sync() -> None:
    assert parameters(FSDPEngine.get_per_tensor_param)[:3] == ["self", "layered_summon", "base_sync_done"]
    in_order(
        ActorRolloutRefWorker.update_weights,
        "self.actor.engine.get_per_tensor_param( layered_summon=self.layered_summon, base_sync_done=True )",
        "if self.actor.engine.is_param_offload_enabled:",
        'self.actor.engine.to("cpu", model=True, optimizer=False, grad=False)',
        of_ours="SnapshotWorker.save_snapshot, which does the same",
    )
    assert 'self.config.rollout.get("layered_summon", False)' in body(ActorRolloutRefWorker.init_model)
    in_order(
        FSDPEngine.get_per_tensor_param,
        "if not merge_lora:",
        'peft_model.peft_config.get("default", None)',
        "return self._merged_lora_per_tensor_param(), None",
        "return per_tensor_param, peft_config_dict",
        of_ours="SnapshotWorker.save_snapshot: whole weights where LoRA is merged",
    )


def test_snapshots_reach_every_rank() -> None:
    assert not {"save_snapshot"} & set(dir(ActorRolloutRefWorker)), "verl's worker has that now too"
    one_to_all = getattr(ActorRolloutRefWorker.save_checkpoint, MAGIC_ATTR)
    assert getattr(SnapshotWorker.save_snapshot, MAGIC_ATTR) == one_to_all


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_vllm_takes_temperatures_up_to_two_and_changes_those_below_a_hundredth() -> None:
    from vllm import SamplingParams

    assert [SamplingParams(temperature=t).temperature for t in (0.0, 0.001, 0.01, 2.0)] == [0.0, 0.01, 0.01, 2.0]
    with pytest.raises(Exception, match=r"temperature must be in \[0, 2\]"):
        SamplingParams(temperature=2.001)


def test_a_paused_server_sends_requests_away_if_it_is_told_to() -> None:
    """A slot sleeps only when nobody waits in it."""
    in_order(
        vLLMHttpServer._park_until_admitted,
        "while self._submission_paused:",
        "if self._rejecting:",
        'stop_reason="aborted"',
        "await self._resume_event.wait()",
        of_ours="SlotEngine.sleep",
    )
    assert parameters(vLLMHttpServer.abort_all_requests)[:3] == ["self", "reset_prefix_cache", "reject_request"]
    aborting = inspect.getsource(vLLMHttpServer.abort_all_requests)
    assert "self._rejecting = reject_request" in aborting
    assert "self._submission_paused = True" in aborting and "pause_generation(" in aborting
    assert "self._submission_paused = False" in inspect.getsource(vLLMHttpServer.open_submission_gate)
    assert "rejected = await self._park_until_admitted(request_id)" in inspect.getsource(vLLMHttpServer.generate)
