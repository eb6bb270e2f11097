"""Which hardware a run is for, where nobody says it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recipe.spiral.processes.composing import detect_hardware


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an NVIDIA driver."""
    monkeypatch.delenv("SPIRAL_HARDWARE", raising=False)
    command = tmp_path / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))


def made_for(kind: str) -> None:
    """The mark of ``run_scripts/setup.sh``."""
    marks = Path(sys.prefix, ".spiral")
    marks.mkdir(parents=True)
    (marks / "kind").write_text(f"{kind}\n")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_an_environment_of_ours_says_what_it_is_for(kind: str) -> None:
    made_for(kind)
    assert detect_hardware() == kind


def test_the_user_says_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("cpu")
    monkeypatch.setenv("SPIRAL_HARDWARE", "gpu")
    assert detect_hardware() == "gpu"
