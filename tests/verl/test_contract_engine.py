"""What the engines rely on in verl and vLLM; see test_contract.py."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hydra.utils import get_class
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import RolloutReplica, get_rollout_replica_class
from verl.workers.rollout.vllm_rollout import utils as vllm_utils
from verl.workers.rollout.vllm_rollout import vllm_rollout
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm import SamplingParams
from vllm.inputs.preprocess import InputPreprocessor
from vllm.lora import model_manager
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager, WorkerLoRAManager
from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.worker import lora_model_runner_mixin
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from recipe.spiral.workers import engine  # noqa: F401  (registers its classes)
from recipe.spiral.workers.engine.adapters import FIRST_ID
from recipe.spiral.workers.engine.opponent_engines import FIRST_RANK
from recipe.spiral.workers.engine.vllm import MOST_CALLS, SlotReplica, SlotServer, VLLMAdapter, VLLMReplica, VLLMServer

from .test_contract import body, in_order, parameters

#: As in test_contract.py.
SOURCES: list[tuple[Any, ...]] = [
    # -- the server
    (
        "VLLMServer.answer",
        vLLMHttpServer.generate,
        'max_tokens = sampling_params.pop("max_tokens")',
        'sampling_params.pop("logprobs", False)',
        'sampling_params.setdefault("seed"',
        "SamplingParams(max_tokens=max_tokens, **sampling_params)",
        'prompt_kwargs = {"prompt_token_ids": prompt_ids, "multi_modal_data": multi_modal_data}',
        "if self.lora_as_adapter:",
        "VLLM_LORA_INT_ID in await self.engine.list_loras()",
        "rejected = await self._park_until_admitted(request_id)",
        "self.engine.generate( prompt=prompt,",
        "lora_request=lora_request",
        "async for output in generator:",
        "self._admitting -= 1",
    ),
    (
        "VLLMServer.run_server",
        vLLMHttpServer.launch_server,
        '"max_loras": 1,',
        "args.update(lora_args)",
        "server_args = parser.parse_args(args=server_args)",
        "await self.run_server(server_args)",
    ),
    ("VLLMServer.run_server", vLLMHttpServer.run_server, "AsyncEngineArgs.from_cli_args(args)", "self.engine = "),
    (
        "run_name",
        vllm_rollout.ServerAdapter.__init__,
        "job_id = ray.get_runtime_context().get_job_id()",
        'self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{job_id}-replica-',
    ),
    (
        "run_name",
        vLLMHttpServer.__init__,
        'os.environ["VERL_REPLICA_RANK"] = str(replica_rank)',
        'os.environ["VERL_RAY_JOB_ID"] = ray.get_runtime_context().get_job_id()',
    ),
    ("VLLMReplica", vLLMReplica.__init__, "self.server_class = ray.remote(vLLMHttpServer)"),
    ("MOST_CALLS", vLLMHttpServer._park_until_admitted, "self._submission_paused", "self._resume_event.wait()"),
    ("TokenPrompts", InputPreprocessor._process_tokens, "inputs = tokens_input(prompt_token_ids)"),
    ("TokenPrompts", InputProcessor.process_inputs, 'if isinstance(prompt, dict) and "type" in prompt:'),
    # -- slots
    (
        "SlotReplica.launch_on",
        vLLMReplica.launch_servers,
        "len(self.workers) == self.world_size",
        "worker.__ray_call__.remote(",
        'name = f"{prefix}server_{self.replica_rank}_{node_rank}{self.name_suffix}"',
        "self.server_class.options(",
        "max_concurrency=self.max_concurrency",
        "rollout_mode=self.rollout_mode",
        "self.servers.append(server)",
    ),
    (
        "SlotServer.sleep",
        vLLMHttpServer.sleep,
        "not self.config.free_cache_engine",
        "RolloutMode.HYBRID",
        "await self._sleep_hybrid()",
    ),
    ("FIRST_RANK", LLMServerManager._initialize_llm_servers, "replica_rank=start_rank + replica_rank"),
    ("SlotEngine.sleep", vLLMHttpServer.abort_all_requests, "self._submission_paused = True", "pause_generation("),
    # -- adapters
    ("the policy's adapter is there first", PPOTrainerSync.on_init_end, "self.checkpoint_manager.update_weights("),
    (
        "the policy's adapter is there first",
        PPOTrainer._validate,
        "self.checkpoint_manager.sleep_replicas()",
        "self.checkpoint_manager.update_weights()",
    ),
    ("VLLMServer.wake_up", ActorRolloutRefWorker.update_weights, 'self.rollout.resume(tags=["weights"])'),
    ("WorkerExtension", model_manager.LoRAModelManager.set_adapter_mapping, "self._last_mapping != mapping"),
    ("opponent_engines.make_room", LRUCacheWorkerLoRAManager.add_adapter, "remove_oldest_adapter()"),
    ("read at its first request", LRUCacheWorkerLoRAManager._apply_adapters, "self.add_adapter(lora)"),
]


@pytest.mark.parametrize("entry", SOURCES, ids=lambda entry: entry[1].__name__)
def test_the_source_says(entry: tuple[Any, ...]) -> None:
    _, function, *parts = entry
    in_order(function, *parts)


def test_the_engines_classes_are_ours() -> None:
    assert get_rollout_class("vllm") is VLLMAdapter
    assert get_rollout_replica_class("vllm") is VLLMReplica
    assert all(object.__new__(replica).max_concurrency == MOST_CALLS for replica in (VLLMReplica, SlotReplica))
    assert "return max(1000, " in inspect.getsource(RolloutReplica.max_concurrency.fget)  # type: ignore[attr-defined]


def test_what_we_define_is_overridden_on_purpose_or_ours_alone() -> None:
    hooks = {"run_server", "generate", "wake_up", "sleep", "_get_worker_extension_cls", "engine"}
    ours = {name for one in (VLLMServer, SlotServer) for name in vars(one) if not name.startswith("__")}
    source = inspect.getsource(vLLMHttpServer)
    assert not {name for name in ours - hooks if name in dir(vLLMHttpServer) or f"self.{name} " in source}
    for name in hooks - {"generate", "engine"}:
        one = SlotServer if name in vars(SlotServer) else VLLMServer
        assert parameters(getattr(one, name)) == parameters(getattr(vLLMHttpServer, name))
    assert parameters(VLLMServer.generate)[:4] == parameters(vLLMHttpServer.generate)[:4]
    assert "adapter" not in parameters(vLLMHttpServer.generate), "verl can choose an adapter itself now"
    assert body(vLLMHttpServer.generate).count("self.engine.") == 2, "ChoosingEngine sees all of a request"


def test_the_opponents_names_and_sockets_are_not_the_policys() -> None:
    handle = body(vllm_utils.vLLMColocateWorkerExtension._get_zmq_handle)
    assert "-replica-{replica_rank}-" in handle
    assert inspect.signature(LLMServerManager.__init__).parameters["start_rank"].default == 0 < FIRST_RANK
    assert parameters(RolloutReplica.__init__)[-1] == "name_suffix"
    assert vllm_utils.VLLM_LORA_INT_ID < FIRST_ID


def test_an_engine_that_died_says_so() -> None:
    assert isinstance(AsyncLLM.errored, property) and isinstance(AsyncLLM.dead_error, property)


def test_vllm_reloads_weights_from_a_folder() -> None:
    assert "weights_path" in parameters(GPUModelRunner.reload_weights)


def test_vllms_workers_are_extended_by_ours() -> None:
    extension = get_class(VLLMServer._get_worker_extension_cls(Any))
    assert issubclass(extension, get_class(vLLMHttpServer._get_worker_extension_cls(Any)))
    assert "self.lora_manager = " in inspect.getsource(lora_model_runner_mixin)
    assert "self._adapter_manager" in inspect.getsource(WorkerLoRAManager)


def test_vllms_adapters() -> None:
    for method in ("remove_lora", "list_loras", "reset_prefix_cache", "collective_rpc"):
        assert inspect.iscoroutinefunction(getattr(AsyncLLM, method)), method
    assert {"lora_name", "lora_int_id", "lora_path"} <= set(LoRARequest.__struct_fields__)
    assert "lora_request" in parameters(RequestOutput.__init__), "ChoosingEngine asks an answer whose it is"


def test_vllm_takes_temperatures_up_to_two_and_changes_those_below_a_hundredth() -> None:
    assert [SamplingParams(temperature=t).temperature for t in (0.0, 0.001, 0.01, 2.0)] == [0.0, 0.01, 0.01, 2.0]
