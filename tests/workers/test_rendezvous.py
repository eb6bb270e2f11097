"""The ranks' store listens on one address, which torch's own does not."""

from __future__ import annotations

import importlib

import pytest

from recipe.spiral.workers.rendezvous import on_one_address


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
