"""The check of GPUs: one made stage passes, one fails, one hangs, and nothing of theirs is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu_check.__main__ import SOME_FAILED, main
from benchmarks.gpu_check.stages import Stage

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
STAGES = [
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
    assert main(["--device", "cpu", "--folder", str(folder), "--minutes", "60", *more], STAGES) == SOME_FAILED
    content: dict[str, Any] = json.loads((folder / "gpu_report.json").read_text(encoding="utf-8"))
    found = {result["name"]: result for result in content["stages"]}
    statuses = {name: result["status"] for name, result in found.items()}
    assert statuses == {"good": "passed", "bad": "failed", "hangs": "ended", "late": "ended"}
    assert not psutil.pid_exists(found["hangs"]["figures"]["pid"])
    written = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file())
    assert "a-key-that-nobody-knows" not in written and str(tmp_path) not in written
    assert "of it" in (folder / "gpu_report.md").read_text(encoding="utf-8")
