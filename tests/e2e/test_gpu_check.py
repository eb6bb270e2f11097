"""The check of a machine's GPUs: whole, on a CPU, and with made stages of which one fails and one hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu_check.__main__ import SOME_FAILED, main
from benchmarks.gpu_check.stages import STAGES, Stage
from tests.e2e.conftest import ROOT


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.timeout(7200)
def test_every_stage_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--folder", str(tmp_path / "check")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=7000)
    assert done.returncode == 0, done.stdout + done.stderr
    stages = json.loads((tmp_path / "check" / "gpu_report.json").read_text())["stages"]
    assert {stage["name"]: stage["status"] for stage in stages} == {
        stage.name: "skipped" if stage.name == "vllm_v2" else "passed" for stage in STAGES
    }


MADE = """
import subprocess, sys, time

def good(probe):
    probe.check("it is good", True)
    probe.figure("seconds", {"of it": 1.5})

def bad(probe):
    print("my key is a-key-that-nobody-knows", flush=True)
    probe.check("it is good", False, "no")

def hangs(probe):
    probe.figure("pid", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
    time.sleep(600)
"""
MADE_STAGES = [
    Stage("good", "made:good", 0, 60),
    Stage("bad", "made:bad", 0, 60),
    Stage("hangs", "made:hangs", 0, 6),
    Stage("late", "made:good", 9000, 9000),
]


@pytest.mark.e2e
@pytest.mark.parametrize("more", [[], ["--side-by-side"]])
def test_stages_end_as_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    (tmp_path / "made.py").write_text(MADE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MY_API_KEY", "a-key-that-nobody-knows")
    folder = tmp_path / "check"
    assert main(["--device", "cpu", "--folder", str(folder), "--minutes", "60", *more], MADE_STAGES) == SOME_FAILED
    content: dict[str, Any] = json.loads((folder / "gpu_report.json").read_text(encoding="utf-8"))
    found = {result["name"]: result for result in content["stages"]}
    statuses = {name: result["status"] for name, result in found.items()}
    assert statuses == {"good": "passed", "bad": "failed", "hangs": "ended", "late": "ended"}
    assert not psutil.pid_exists(found["hangs"]["figures"]["pid"])
    written = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file())
    assert "a-key-that-nobody-knows" not in written and str(tmp_path) not in written
    assert "of it" in (folder / "gpu_report.md").read_text(encoding="utf-8")
