"""A run's engines without the run: two opponents' slots, a policy with LoRA, and workers, on a Ray of their own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
from omegaconf import DictConfig, OmegaConf
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.plugin.platform import get_platform
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.replica import RolloutMode

from recipe.spiral.workers.engine.client import GameClient
from recipe.spiral.workers.engine.opponent_engines import AdapterEngine, SlotEngine
from recipe.spiral.workers.engine.vllm import SlotReplica, VLLMReplica
from recipe.spiral.workers.policy_worker import PolicyWorker

PROMPTS = ("Where do you play?", "You are player 1. [bet] or [pass]?", "X . O", "The board is empty. \\boxed{")
TOKENS = 12
SAMPLING = {"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True}
LORA = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM", "init_lora_weights": False}
KV_CACHE = 64 * 1024**2

Tokens = list[list[int]]


class Device:
    """Has one, and stands for the policy's worker."""


@dataclass
class Engines:
    """Two slots, and a policy with LoRA on one server."""

    opponents: SlotEngine
    policy: Any
    adapters: AdapterEngine
    client: GameClient
    config: DictConfig
    prompts: list[list[int]]

    def ask(self, name: str, slot: int | None, prompt: list[int]) -> Any:
        return self.client.generate_as(name, slot, f"{name}-{slot}", prompt, SAMPLING)

    def answers(self, name: str, slot: int | None = None) -> Tokens:
        """All prompts at once."""

        async def gather() -> Tokens:
            outputs = await asyncio.gather(*[self.ask(name, slot, prompt) for prompt in self.prompts])
            assert {output.extra_fields["answered_by"] for output in outputs} == {name}
            return [list(output.token_ids) for output in outputs]

        return asyncio.run(gather())

    def of_policy(self) -> Tokens:
        async def gather() -> Tokens:
            calls = [
                self.client.generate(str(i), prompt_ids=prompt, sampling_params=SAMPLING)
                for i, prompt in enumerate(self.prompts)
            ]
            outputs = await asyncio.gather(*calls)
            assert all("answered_by" not in output.extra_fields for output in outputs)
            return [list(output.token_ids) for output in outputs]

        return asyncio.run(gather())


def greedy(model: Any, prompts: Sequence[list[int]]) -> Tokens:
    """What transformers answers."""
    answers = []
    for prompt in prompts:
        ids = list(prompt)
        with torch.no_grad():
            for _ in range(TOKENS):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        answers.append(ids[len(prompt) :])
    return answers


def of_folder(folder: Path, prompts: Sequence[list[int]]) -> Tokens:
    return greedy(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), prompts)


def other_weights(model: Path, folder: Path, seed: int) -> Path:
    """The same model with each of its weights changed."""
    shutil.copytree(model, folder)
    torch.manual_seed(seed)
    file = folder / "model.safetensors"
    weights = load_file(file)
    save_file({name: w + 0.5 * w.std() * torch.randn_like(w) for name, w in weights.items()}, file, {"format": "pt"})
    return folder


def with_adapter(model: Path, folder: Path) -> Any:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return PeftModel.from_pretrained(base, folder).eval()


def start(config: DictConfig, model: Path, tied: Path) -> Engines:
    """All at the same time, on one device, whose holder stands for the policy's worker.

    The policy's model has an output layer of its own, the opponents' has not; in a run they are of one architecture.
    """
    of_opponents = OmegaConf.merge(config, {"actor_rollout_ref": {"model": {"path": str(tied)}}})
    device = [ray.remote(Device).options(num_cpus=0, **get_platform().ray_resource_options(1)).remote()]
    with ThreadPoolExecutor(2) as pool:
        policy = pool.submit(start_policy, config, device)
        opponents = pool.submit(SlotEngine.start, of_opponents, 2, device, SlotReplica).result()
    replica = policy.result()
    client = GameClient(config, None, replica.servers, opponents.handles)
    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    return Engines(opponents, replica, AdapterEngine([replica]), client, config, prompts)


def start_policy(config: DictConfig, workers: list[Any]) -> Any:
    rollout = OmegaConf.to_container(config.actor_rollout_ref.rollout, resolve=True)
    limits = {"engine_kwargs": {"vllm": {"max_loras": 3, "max_cpu_loras": 3}}, "load_format": "auto"}
    replica = VLLMReplica(
        replica_rank=0,
        config=OmegaConf.merge(rollout, limits),
        model_config=OmegaConf.merge(config.actor_rollout_ref.model, {"lora_rank": LORA["r"]}),
        gpus_per_node=1,
    )
    replica.workers, replica.rollout_mode = workers, RolloutMode.HYBRID
    asyncio.run(replica.launch_servers())
    return replica


def sync(engines: Engines, folder: Path, model: Path) -> None:
    """What verl's workers do after an update."""
    from recipe.spiral.workers.engine.vllm import VLLMAdapter

    policy = with_adapter(model, folder)
    sender = VLLMAdapter(
        config=omega_conf_to_dataclass(engines.config.actor_rollout_ref.rollout),
        model_config=omega_conf_to_dataclass(engines.config.actor_rollout_ref.model),
        device_mesh=None,
        replica_rank=0,
    )
    weights = {name: weight.detach() for name, weight in get_peft_model_state_dict(policy).items()}
    asyncio.run(
        sender.update_weights(
            iter(weights.items()),
            peft_config=policy.peft_config["default"].to_dict(),
            base_sync_done=True,
            global_steps=1,
        )
    )


@contextmanager
def workers(config: DictConfig, ranks: int) -> Iterator[Any]:
    """The policy's workers without their engines, with FSDP."""
    pool = RayResourcePool([ranks], use_gpu=True, max_colocate_count=1)
    worker = RayClassWithInitArgs(cls=ray.remote(PolicyWorker), config=config.actor_rollout_ref, role="actor")
    group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=worker, device_name="cpu")
    try:
        group.init_model()
        yield group
    finally:
        for actor in group.workers:
            ray.kill(actor)
        for bundles in pool.get_placement_groups():
            ray.util.remove_placement_group(bundles)


def with_model(config: DictConfig, **settings: Any) -> DictConfig:
    plain = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    return OmegaConf.merge(plain, {"actor_rollout_ref": {"model": settings}})
