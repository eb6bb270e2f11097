"""The ranks' store listens on one address, which torch's own does not."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from recipe.spiral.workers.rendezvous import on_one_address
from tests.made_configs import config
from tests.ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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


def meet(folder: Path, method: str) -> list[str]:
    port = str(free_port())
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    run_ranks(on_a_rank, folder, method.format(port=port), **environment)
    return [(folder / f"told_{rank}.txt").read_text() for rank in range(2)]


@pytest.mark.parametrize("method", ["spiral://", "spiral://127.0.0.1:{port}"])
def test_two_ranks_meet_on_one_address(tmp_path: Path, method: str) -> None:
    for told in meet(tmp_path, method):
        assert told == "2 ['127.0.0.1']"


def test_one_rank_alone_needs_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    import torch

    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        torch.distributed.init_process_group("cpu:gloo", init_method="spiral://", rank=0, world_size=1)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def test_torchs_own_listens_on_all_addresses(tmp_path: Path) -> None:
    """Fails when the rendezvous can go."""
    assert any("'::'" in told or "'0.0.0.0'" in told for told in meet(tmp_path, "env://"))


def test_only_addresses_are_changed() -> None:
    assert on_one_address("tcp://127.0.0.1:5") == "spiral://127.0.0.1:5"
    assert on_one_address("env://") == "env://"


def test_the_ranks_meet_where_the_environment_says() -> None:
    from verl.utils.distributed import initialize_global_process_group_ray

    from tests.test_verl_contract import body  # imports much, of which a rank needs nothing

    assert 'init_method=os.environ.get("DIST_INIT_METHOD", None)' in body(initialize_global_process_group_ray)


@pytest.mark.parametrize(("ours", "theirs"), [("cpu_vllm.CPUWorker", "cpu_worker"), ("gpu_vllm.Worker", "gpu_worker")])
def test_vllms_worker_is_told_where_its_ranks_meet(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    from vllm.v1.executor.multiproc_executor import WorkerProc
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    module, name = ours.split(".")
    worker = getattr(importlib.import_module(f"recipe.spiral.workers.platforms.{module}"), name)
    base = getattr(importlib.import_module(f"vllm.v1.worker.{theirs}"), name)
    assert issubclass(worker, base)
    assert "distributed_init_method" in inspect.signature(base.__init__).parameters
    for method in (UniProcExecutor._init_executor, WorkerProc.__init__):
        assert re.search('distributed_init_method"?[=:] ?distributed_init_method', inspect.getsource(method))
    told: dict[str, object] = {}
    monkeypatch.setattr(base, "__init__", lambda self, **settings: told.update(settings))
    worker(vllm_config=None, rank=0, distributed_init_method="tcp://127.0.0.1:5", is_driver_worker=True)
    assert told.pop("distributed_init_method") == "spiral://127.0.0.1:5"
    assert told == {"vllm_config": None, "rank": 0, "is_driver_worker": True}


def test_a_gpus_worker_is_ours_in_training_and_evaluation(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    ours = "recipe.spiral.workers.platforms.gpu_vllm.Worker"
    training = config(tmp_path, hardware="gpu")
    assert training.actor_rollout_ref.rollout.engine_kwargs.vllm.worker_cls == ours
    engine = OmegaConf.load(ROOT / "recipe/spiral/config/engine/gpu.yaml")
    assert engine.engine.vllm.worker_cls == ours
