"""The check of a machine's GPUs, whole, on a CPU: every stage passes, or says why it cannot be run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check.speed import MEMORY, RUN, TABLE
from benchmarks.gpu_check.stages import STAGES
from recipe.spiral.processes.launch import end_with_parent

from .conftest import ROOT

#: How many checks a stage makes; a stage that is skipped as a whole makes one.
NUMBERS = {stage.name: stage.checks for stage in STAGES if stage.checks and stage.name != "vllm_v2"}
pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.mark.timeout(7200)
def test_every_stage_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--folder", str(tmp_path / "check")]
    environment = {**os.environ, "MY_API_KEY": "a-key-that-nobody-knows"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=7000, preexec_fn=end_with_parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    stages = json.loads((tmp_path / "check" / "gpu_report.json").read_text())["stages"]
    assert {stage["name"]: stage["status"] for stage in stages} == {
        stage.name: "skipped" if stage.name == "vllm_v2" else "passed" for stage in STAGES
    }
    figures = {stage["name"]: stage["figures"] for stage in stages}
    counts = {stage["name"]: len(stage["checks"]) for stage in stages}
    assert {name: counts[name] for name in NUMBERS} == NUMBERS
    table = figures["speed"][TABLE]
    assert table.keys() == {RUN, "alone, at once", "alone, lock step", "alone, one by one"}
    assert all(row["play s"] > 0 and row["tokens/s in play"] > 0 for row in table.values())
    assert all(table[name]["model flops utilisation"] > 0 for name in (RUN,))
    assert figures["speed"][MEMORY]["training"]["measured"] > 0
    written = "".join(file.read_text(errors="replace") for file in (tmp_path / "check").rglob("*") if file.is_file())
    for private in (str(tmp_path), str(ROOT), "a-key-that-nobody-knows"):
        assert private not in written
