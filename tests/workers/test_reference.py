"""The reference policy becomes the actor, or the mean of what it was, stays that way, and survives a checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from verl.trainer.ppo.utils import Role
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from recipe.spiral.trainer import SpiralTrainer
from recipe.spiral.workers.mini_batch_worker import MiniBatchWorker
from recipe.spiral.workers.policy_worker import PolicyWorker, use_our_workers
from recipe.spiral.workers.reference import ReferenceWorker, exchanged, local_shards
from tests.ranks import run_ranks


class LoraModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(3, 3, bias=False)
        self.lora_A = nn.Linear(3, 1, bias=False)
        self.lora_B = nn.Linear(1, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x))


def model(seed: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Neither of its sizes is a multiple of two; the norm has buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 7)).to(dtype).eval()


def worker(actor: nn.Module, ref: nn.Module | None, rank: int = 0, ranks: int = 1) -> Any:
    """A worker whose engines hold nothing but a model."""
    made = object.__new__(ReferenceWorker)
    made._rank, made._world_size = rank, ranks
    made.actor = SimpleNamespace(engine=SimpleNamespace(module=actor))
    made.ref = None if ref is None else SimpleNamespace(engine=SimpleNamespace(module=ref))
    return made


# -- full weights ------------------------------------------------------------------------------------------------------


def test_the_reference_is_the_actor_of_the_last_update() -> None:
    actor, ref, x = model(0), model(1), torch.randn(4, 3)
    at_update = actor(x)
    worker(actor, ref).update_reference()
    assert torch.equal(ref(x), at_update)
    with torch.no_grad():
        actor[0].weight.add_(1.0)
    assert torch.equal(ref(x), at_update), "a copy, not the actor's own weights"


def test_another_models_reference_is_refused(tmp_path: Path) -> None:
    worker(model(0), model(1)).save_reference(str(tmp_path))
    larger = nn.Sequential(nn.Linear(3, 6))
    before = larger[0].weight.clone()
    with pytest.raises(ValueError, match=r"the shard 0\.weight is \(5, 3\) where \(6, 3\) is needed"):
        worker(model(0), larger).load_reference(str(tmp_path))
    assert torch.equal(larger[0].weight, before)
    with pytest.raises(ValueError, match=r"the shard 3\.weight is missing where \(2, 2\) is needed"):
        worker(model(0), nn.Sequential(*model(1), nn.Linear(2, 2))).update_reference()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_reference_that_goes_a_part_of_the_way_is_the_exponential_mean(dtype: torch.dtype) -> None:
    """By hand, with an actor of either dtype; what is no floating-point number is copied."""
    actor, ref = nn.BatchNorm1d(2).to(dtype), nn.BatchNorm1d(2)
    made, weights = worker(actor, ref), actor.state_dict()
    for state in (weights, ref.state_dict()):
        for tensor in state.values():
            tensor.zero_()
    reached = []
    for value in (1, 2, -1):
        for tensor in weights.values():
            tensor.fill_(value)
        made.update_reference(0.25)
        reached.append(ref.weight.tolist())
        assert torch.equal(ref.running_var, ref.weight) and ref.num_batches_tracked == value
    assert reached == [[0.25, 0.25], [0.6875, 0.6875], [0.265625, 0.265625]]
    assert ref.weight.dtype == torch.float32 and torch.equal(actor.weight, torch.full((2,), -1, dtype=dtype))


@pytest.mark.e2e
def test_two_ranks_of_fsdp(tmp_path: Path) -> None:
    """Uneven shards, another dtype, and a forward pass whose gathered weights FSDP has kept."""
    run_ranks(on_a_rank, tmp_path)


def on_a_rank(rank: int, folder: Path) -> None:
    """What each of the two processes of the test above does."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    x = torch.ones(2, 3)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)

    def sharded(seed: int, dtype: torch.dtype = torch.float32) -> Any:
        made = model(seed, dtype)[:1]
        for module in (made[0], made):
            fully_shard(
                module,
                mesh=torch.distributed.init_device_mesh("cpu", (2,)),
                mp_policy=policy,
                reshard_after_forward=False,
            )
        return made

    with torch.no_grad():
        actor, ref = sharded(0), sharded(1, torch.bfloat16)
        first, initial = actor(x), ref(x)
        assert not torch.equal(first, initial)
        worker(actor, ref, rank, 2).update_reference()
        assert isinstance(ref.state_dict()["0.weight"], DTensor)
        assert torch.equal(ref(x), first)

        worker(actor, ref, rank, 2).save_reference(str(folder / "ref"))
        saved = torch.load(folder / "ref" / f"model_world_size_2_rank_{rank}.pt", weights_only=True)
        assert saved["0.weight"].shape == (3 - rank, 3), "a shard, not the whole"
        resumed = sharded(2, torch.bfloat16)
        resumed(x)
        worker(actor, resumed, rank, 2).load_reference(str(folder / "ref"))
        assert torch.equal(resumed(x), first)

        mean, steps = sharded(4), (0, 3, 0)
        for seed in steps:
            worker(sharded(seed), mean, rank, 2).update_reference(0.25)
        for name, shard in mean.state_dict().items():
            expected = model(4).state_dict()[name]
            for seed in steps:
                expected = 0.75 * expected + 0.25 * model(seed).state_dict()[name]
            torch.testing.assert_close(shard.full_tensor(), expected)
        assert mean.state_dict()["0.weight"].to_local().shape == (3 - rank, 3)

        other = sharded(3)
        with exchanged(local_shards(other), actor):
            assert torch.equal(actor(x), other(x))
        assert torch.equal(actor(x), first)
    torch.distributed.destroy_process_group()


# -- LoRA --------------------------------------------------------------------------------------------------------------


def asked(no_lora_adapter: bool | None = None) -> TensorDict:
    data = TensorDict({"x": torch.ones(2, 3)}, batch_size=2)
    if no_lora_adapter is not None:
        tu.assign_non_tensor(data, no_lora_adapter=no_lora_adapter)
    return data


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's part: the model's output, the base model's where the adapter is to be switched off."""

    def compute_log_prob(self: Any, data: TensorDict) -> Any:
        module = self.actor.engine.module
        return (module.base if tu.get(data, key="no_lora_adapter", default=False) else module)(data["x"])

    monkeypatch.setattr(ActorRolloutRefWorker, "compute_log_prob", compute_log_prob)


@pytest.mark.usefixtures("computed")
def test_with_lora_the_reference_is_the_base_and_then_a_frozen_adapter(tmp_path: Path) -> None:
    actor, x = LoraModel(), torch.ones(2, 3)
    made = worker(actor, None)
    assert torch.equal(made.compute_log_prob(asked(True)), actor.base(x)), "verl's own way before the first update"
    at_update = actor(x)
    made.update_reference()
    with torch.no_grad():
        actor.lora_B.weight.add_(1.0)
    now = actor(x)
    assert torch.equal(made.compute_log_prob(asked(True)), at_update)
    assert torch.equal(made.compute_log_prob(asked()), now), "and the actor is itself again"
    assert torch.equal(made.compute_log_prob(asked(False)), now)

    made.save_reference(str(tmp_path))
    assert set(torch.load(tmp_path / "model_world_size_1_rank_0.pt", weights_only=True)) == {
        "lora_A.weight",
        "lora_B.weight",
    }
    resumed = worker(actor, None)
    resumed.load_reference(str(tmp_path))
    assert torch.equal(resumed.compute_log_prob(asked(True)), at_update)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_with_lora_the_mean_is_that_of_a_and_of_b(tmp_path: Path, dtype: torch.dtype) -> None:
    """From the base model, with the first A; in float32, whatever the actor is in, and over a checkpoint as well."""
    torch.manual_seed(0)
    actor, rate = LoraModel().to(dtype), 0.25
    made, own = worker(actor, None), actor.base.weight.float()
    a, b = actor.lora_A.weight.float(), torch.zeros(3, 1)
    first = own + rate * actor.lora_B.weight.float() @ actor.lora_A.weight.float()
    for step in range(4):
        a = (1 - rate) * a + rate * actor.lora_A.weight.float()
        b = (1 - rate) * b + rate * actor.lora_B.weight.float()
        made.update_reference(rate)
        made.save_reference(str(tmp_path))
        saved = torch.load(tmp_path / "model_world_size_1_rank_0.pt", weights_only=True)
        torch.testing.assert_close(saved, {"lora_A.weight": a, "lora_B.weight": b})
        if step == 0:
            torch.testing.assert_close(own + b @ a, first, msg="the first is the mean of the weights as well")
        x = torch.ones(2, 3, dtype=dtype)
        data = asked(True)
        data["x"] = x
        with torch.no_grad():
            weights = [part.to(dtype) for part in (a, b)]
            expected = actor.base(x) + x @ weights[0].T @ weights[1].T
            torch.testing.assert_close(made.compute_log_prob(data), expected)
            for part in (actor.lora_A, actor.lora_B):
                part.weight.add_(torch.randn_like(part.weight))
        made = worker(actor, None)
        made.load_reference(str(tmp_path))


# -- the trainer -------------------------------------------------------------------------------------------------------


class _VerlTrainer:
    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> str:
        self.calls.append("step")  # type: ignore[attr-defined]
        return "batch"

    def _compute_values(self, batch: Any, metrics: dict[str, Any]) -> dict[str, Any]:
        return dict(batch.extra_info)


class _Trainer(SpiralTrainer, _VerlTrainer):
    def __init__(self, every: int | None) -> None:
        self.config = OmegaConf.create({"ref_update_freq": every, "ref_update_rate": 0.5})
        self.calls: list[str] = []
        self.state: Any = SimpleNamespace(league=SimpleNamespace(due=lambda step: False, pool=None))
        self.actor_rollout_wg = SimpleNamespace(update_reference=lambda rate: self.calls.append(f"update {rate}"))


def test_the_reference_is_updated_after_every_nth_step() -> None:
    trainer, updated = _Trainer(2), []
    for trainer.global_steps in range(1, 5):
        metrics: dict[str, Any] = {}
        timing: dict[str, float] = {}
        assert trainer._step_once(metrics, timing, 4) == "batch"
        assert ("update_ref" in timing) == bool(metrics["ref/updated"])
        updated.append(metrics["ref/updated"])
    assert updated == [0.0, 1.0, 0.0, 1.0]
    assert trainer.calls == ["step", "step", "update 0.5", "step", "step", "update 0.5"]


@pytest.mark.parametrize("role", [Role.ActorRolloutRef, Role.ActorRollout])
def test_the_workers_are_ours(role: Role) -> None:
    classes: dict[Role, Any] = {role: "verl's", Role.Critic: "verl's", Role.RefPolicy: "verl's"}
    use_our_workers(classes)
    parts = (role, Role.RefPolicy, Role.Critic)
    policy, reference, critic = (classes[part].__ray_metadata__.modified_class for part in parts)
    assert issubclass(policy, PolicyWorker) and issubclass(policy.actor_worker_cls, MiniBatchWorker)
    assert issubclass(reference, PolicyWorker) and issubclass(critic, MiniBatchWorker)
