"""A trace of one step, of a stand-in for a run: a driver that holds the folder's lock, and a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recipe.spiral.lab.profile import tracing
from recipe.spiral.lab.profile.__main__ import main
from recipe.spiral.lab.profile.tracing import CannotTrace, name_of, name_processes, trace_step
from recipe.spiral.processes.launch import end_processes

#: Steps of half a second each; the child is busy in a function with a name of its own.
RUN = """
import subprocess, sys, time
from pathlib import Path
from recipe.spiral.processes.launch import only_one
folder = Path(sys.argv[1])
child = "def busy_child():\\n    while True: sum(range(1000))\\nbusy_child()"
with only_one(folder), subprocess.Popen([sys.executable, "-c", child, "ray::RolloutWorker"]) as process:
    with (folder / "train.log").open("a", buffering=1) as log:
        log.write("training for 100 steps\\n")
        for step in range(1, 101):
            time.sleep(0.5)
            log.write(f"step {step}/100  0.5 s\\n")
    process.kill()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path)])
    end = time.monotonic() + 60
    while not (tmp_path / "train.log").exists() and time.monotonic() < end:
        time.sleep(0.05)
    yield tmp_path
    family = psutil.Process(process.pid)
    end_processes([family, *family.children(recursive=True)])
    process.wait()


def test_a_step_of_a_run_is_recorded(run_dir: Path) -> None:
    file = run_dir / "trace.json"
    try:
        traced = trace_step(run_dir, file)
    except CannotTrace as error:
        if "right to look" in str(error):
            pytest.skip("this machine does not let py-spy look into processes")
        raise
    assert traced.step >= 2 and 0.3 < traced.seconds < 10
    assert "rollout worker" in {name for name, _ in traced.cpu}
    events = json.loads(file.read_text())
    named = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    busy = {event["pid"] for event in events if event["name"] == "busy_child"}
    assert {named[pid] for pid in busy} == {"rollout worker"}


def test_an_old_trace_is_not_taken_for_one_that_was_not_recorded(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy, file = tmp_path / "spy", run_dir / "trace.json"
    spy.write_text("#!/bin/sh\necho Permission denied >&2\n")
    spy.chmod(0o755)
    file.write_text("[]")
    monkeypatch.setattr(tracing, "_py_spy", lambda: str(spy))
    with pytest.raises(CannotTrace, match="Permission denied"):
        trace_step(run_dir, file)


def test_the_environment_need_not_be_activated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["nowhere"]) == 2
    assert "no run is under way there" in capsys.readouterr().err


def test_without_a_run_there_is_nothing_to_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no run is under way there" in capsys.readouterr().err


def test_a_step_that_is_over_is_refused(run_dir: Path) -> None:
    while "step 2/" not in (run_dir / "train.log").read_text():
        time.sleep(0.05)
    with pytest.raises(CannotTrace, match="step 1 is over"):
        trace_step(run_dir, run_dir / "trace.json", step=1)


def test_only_processes_of_the_trace_are_named(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps([{"ph": "B", "pid": 1, "name": "f"}]))
    name_processes(file, {1: "trainer", 2: "driver"})
    assert [event["args"]["name"] for event in json.loads(file.read_text()) if event["ph"] == "M"] == ["trainer"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("spiral::trainer", "trainer"),
        ("ray::WorkerDict.actor_rollout_ref_update_actor", "policy worker"),
        ("VLLM::EngineCore", "vLLM's engine"),
        ("ray::IDLE", "Ray: idle worker"),
        ("/usr/bin/python -m recipe.spiral.main_spiral +experiment=quickstart", "driver"),
        ("/usr/bin/sleep 5", "sleep"),
    ],
)
def test_processes_have_names_for_people(line: str, name: str) -> None:
    assert name_of(line) == name
