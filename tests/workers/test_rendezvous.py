"""The ranks' store listens on one address, which torch's own does not."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path

import pytest

from recipe.spiral.workers.rendezvous import on_one_address
from tests.ranks import run_ranks


def on_a_rank(rank: int, folder: Path, method: str) -> None:
    """It meets the others, sums up, and tells where it listens when all are there."""
    import psutil
    import torch

    torch.distributed.init_process_group("cpu:gloo", init_method=method, rank=rank, world_size=2)
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    listening = {c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"}
    (folder / f"told_{rank}.txt").write_text(f"{int(ones.item())} {sorted(listening)}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("method", ["spiral://", "spiral://127.0.0.1:{port}"])
def test_two_ranks_meet_on_one_address(tmp_path: Path, method: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    run_ranks(on_a_rank, tmp_path, method.format(port=port), **environment)
    assert [(tmp_path / f"told_{rank}.txt").read_text() for rank in range(2)] == ["2 ['127.0.0.1']"] * 2


@pytest.mark.parametrize(("ours", "theirs"), [("cpu_vllm.CPUWorker", "cpu_worker"), ("gpu_vllm.Worker", "gpu_worker")])
def test_vllms_worker_is_told_where_its_ranks_meet(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_one_address("env://") == "env://"
    pytest.importorskip("vllm")
    module, name = ours.split(".")
    worker = getattr(importlib.import_module(f"recipe.spiral.workers.platforms.{module}"), name)
    base = getattr(importlib.import_module(f"vllm.v1.worker.{theirs}"), name)
    told: dict[str, object] = {}
    monkeypatch.setattr(base, "__init__", lambda self, **settings: told.update(settings))
    worker(vllm_config=None, rank=0, distributed_init_method="tcp://127.0.0.1:5", is_driver_worker=True)
    assert told == {
        "vllm_config": None,
        "rank": 0,
        "distributed_init_method": "spiral://127.0.0.1:5",
        "is_driver_worker": True,
    }
