"""A checkpoint of another torch: it is exported, and two ranks of FSDP go on from it exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
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

    from recipe.spiral.export.weights import read_weights
    from recipe.spiral.workers.travelling import readable

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
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
    for weight, saved in read_weights(folder, 2).items():
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
