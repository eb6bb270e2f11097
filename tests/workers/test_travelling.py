"""A checkpoint of another torch: it is exported, and two ranks of FSDP go on from it exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from tests.foreign_torch import another_torch
from tests.ranks import run_ranks


@pytest.mark.e2e
def test_two_ranks_go_on(tmp_path: Path) -> None:
    run_ranks(one_rank, tmp_path)


def training(seed: int, mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7))  # neither size is a multiple of two
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def one_rank(rank: int, folder: Path) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from recipe.spiral.export.source import Source
    from recipe.spiral.export.weights import read_weights
    from recipe.spiral.workers.travelling import readable

    checkpoint, folder = folder, folder / "actor"
    folder.mkdir(exist_ok=True)
    dist.init_process_group("gloo", init_method=f"file://{checkpoint}/rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model, optimizer = training(0, mesh)
    step(model, optimizer)
    name = f"world_size_2_rank_{rank}.pt"
    with another_torch() as other:
        states = {"model": model.state_dict(), "optim": optimizer.state_dict()}
        next(iter(states["model"].values())).device_mesh._of_another_torch = other()
        for kind, state in states.items():
            torch.save(state, folder / f"{kind}_{name}")
        del next(iter(states["model"].values())).device_mesh._of_another_torch
    torch.save({"rng": [1]}, folder / f"extra_state_{name}")
    with pytest.raises(AttributeError, match="_OfAnotherTorch"):
        torch.load(folder / f"model_{name}", weights_only=False)
    dist.barrier()
    for weight, saved in read_weights(Source(checkpoint, 1, 2, "run", OmegaConf.create())).items():
        assert torch.equal(saved, states["model"][weight].full_tensor())
    step(model, optimizer)

    resumed, its_optimizer = training(1, mesh)
    step(resumed, its_optimizer)
    with readable(folder, resumed, 2, rank) as own:
        resumed.load_state_dict(torch.load(own / f"model_{name}", weights_only=False))
        its_optimizer.load_state_dict(torch.load(own / f"optim_{name}", weights_only=False))
        assert torch.load(own / f"extra_state_{name}", weights_only=False) == {"rng": [1]}
    assert not own.exists()
    step(resumed, its_optimizer)
    for expected, found in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(expected.to_local(), found.to_local())
    dist.destroy_process_group()


def scheduled(kind: str, lr: float, betas: tuple[float, float] = (0.9, 0.95)) -> Any:
    """A weight, its optimizer and the schedule of its rate, as verl makes them."""
    from verl.utils import torch_functional as verls

    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=lr, betas=betas, weight_decay=0.1 * betas[0])
    if kind == "cosine":
        return weight, optimizer, verls.get_cosine_schedule_with_warmup(optimizer, 2, 10, min_lr_ratio=0.1)
    return weight, optimizer, verls.get_constant_schedule_with_warmup(optimizer, 4)


@pytest.mark.parametrize("kind", ["constant", "cosine"])
def test_an_optimizer_goes_on_with_the_settings_that_are_asked_for(kind: str) -> None:
    """Its moments are the checkpoint's, and its rate is what a run that always had these settings would have now."""
    from recipe.spiral.workers.travelling import as_asked

    def steps(count: int, weight: nn.Parameter, optimizer: Any, schedule: Any) -> None:
        for _ in range(count):
            weight.grad = torch.ones(3)
            optimizer.step()
            schedule.step()

    saved, asked, always = (
        scheduled("constant", 0.1),
        scheduled(kind, 0.01, (0.8, 0.9)),
        scheduled(kind, 0.01, (0.8, 0.9)),
    )
    steps(3, *saved)
    steps(3, *always)
    with as_asked(*asked[1:]):
        for new, old in zip(asked[1:], saved[1:], strict=True):
            new.load_state_dict(old.state_dict())
        asked[0].data.copy_(saved[0])
    (group,), (as_always,) = (each[1].param_groups for each in (asked, always))
    names = ("lr", "initial_lr", "betas", "weight_decay")
    assert [group[name] for name in names] == [as_always[name] for name in names]
    (moments,) = asked[1].state.values()
    assert int(moments["step"]) == 3 and torch.equal(moments["exp_avg"], next(iter(saved[1].state.values()))["exp_avg"])
    steps(3, *asked)
    steps(3, *always)
    assert asked[2].get_last_lr() == always[2].get_last_lr()


def test_with_the_same_settings_it_goes_on_to_the_bit() -> None:
    from recipe.spiral.workers.travelling import as_asked

    saved, again = scheduled("cosine", 1e-4), scheduled("cosine", 1e-4)
    for _ in range(5):
        saved[0].grad = torch.ones(3)
        saved[1].step()
        saved[2].step()
    with as_asked(*again[1:]):
        for new, old in zip(again[1:], saved[1:], strict=True):
            new.load_state_dict(old.state_dict())
    assert again[1].state_dict()["param_groups"] == saved[1].state_dict()["param_groups"]
    assert again[2].state_dict() == saved[2].state_dict()
