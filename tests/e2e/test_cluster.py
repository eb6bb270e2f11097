"""A run on a Ray cluster of two nodes, which here are two of Ray's node managers on one machine: one rank on each."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.own_command import clean_run
from recipe.spiral.processes.launch import end_with_parent
from tests.e2e.conftest import LIMIT, LORA, NO_VALIDATION, Runs, games_of, small
from tests.e2e.test_asynchronous import asynchronous, count

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: Cores that Ray counts with, and bytes of shared memory.
NODE = ("--num-cpus=32", "--object-store-memory=300000000", "--disable-usage-stats")
#: Any that are free: each node would begin at the same one.
PORTS = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
STEPS = 6


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two nodes, which the environment names; its parameter, if given, is the number of logical devices of each."""
    devices = f"--num-gpus={getattr(request, 'param', 1)}"
    folder = tempfile.mkdtemp(prefix="ray-")  # pytest's is too long for the path of a socket
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*unused.getsockname())
    token = Path(folder, "token")
    token.write_text("0" * 64)
    told = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_TMPDIR": folder, "RAY_ADDRESS": address}
    head = ("--head", f"--port={address.split(':')[1]}", "--node-ip-address=127.0.0.1", "--include-dashboard=false")
    with clean_run(tmp_path / "cluster", "run_dir"):
        try:
            for name, value in told.items():
                monkeypatch.setenv(name, value)
            for which in (head, (f"--address={address}",)):
                start_node(tmp_path / "node.txt", devices, *which)
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def start_node(log: Path, *which: str) -> None:
    """``ray start`` in a process that ends with this one; returns when the node is there."""
    command = [Path(sys.executable).with_name("ray"), "start", "--block", *NODE, *PORTS, *which]
    with log.open("w") as output:
        node = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=end_with_parent)
    end = time.monotonic() + LIMIT
    while "Ray runtime started" not in log.read_text():
        assert node.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def test_a_killed_run_goes_on_in_the_same_cluster(tmp_path: Path, model: Path, runs: Runs, cluster: None) -> None:
    settings = small(
        model,
        "trainer.nnodes=2",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=2",
        *NO_VALIDATION,
        "fsp.enabled=true",
        "fsp.update_interval=1",
    )
    runs.kill_and_resume(tmp_path / "run", 3, *settings)
    assert len(list(tmp_path.glob(f"run/checkpoints/global_step_{STEPS}/actor/model_world_size_2_rank_*.pt"))) == 2
    games = games_of(tmp_path / "run")
    assert {record.key.step for record in games if record.opponent == "pool"} >= {4, 5, 6}
    assert audit([str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("cluster", "overrides"),
    [(1, (*LORA, "fsp.initial=[base]")), (2, ("opponent_engine.devices=own",))],
    ids=["LoRA", "opponents on devices of their own"],
    indirect=["cluster"],
)
def test_a_pool_in_a_cluster(
    tmp_path: Path, model: Path, runs: Runs, cluster: None, overrides: tuple[str, ...]
) -> None:
    runs.train(
        tmp_path / "run",
        *small(model, "trainer.nnodes=2", "trainer.total_training_steps=3", "trainer.save_freq=3"),
        *(*NO_VALIDATION, "fsp.enabled=true", "fsp.update_interval=1"),
        *overrides,
    )
    games = games_of(tmp_path / "run")
    assert {record.key.step for record in games if record.opponent == "pool"} >= {2, 3}
    assert audit([str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(("mode", "nodes"), [("colocate_async", 2), ("separate_async", 1)])
def test_asynchronous_modes_in_a_cluster(
    tmp_path: Path, model: Path, runs: Runs, cluster: None, mode: str, nodes: int
) -> None:
    """A rank and an engine on each node; or the learner on one node, and the engine on the other one."""
    settings = asynchronous(model, mode, f"trainer.nnodes={nodes}")
    runs.kill_and_resume(tmp_path / "run", 3, *settings)
    assert count(tmp_path / "run") == "each once" and audit([str(tmp_path / "run")]) == 0
