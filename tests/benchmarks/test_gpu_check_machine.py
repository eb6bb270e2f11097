"""What the check says of a machine: its cards by a made nvidia-smi, and its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.gpu_check import cards, machine
from benchmarks.gpu_check.probe import FAILED, PASSED, Probe, StageFailed

ROOT = Path(__file__).resolve().parents[2]
CARD = "NVIDIA H100 80GB HBM3, 81559 MiB, {driver}, 9.0, Disabled, 5"


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, memory: str = "1024\n2048") -> None:
    """Put a made nvidia-smi on the path."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    listed = "\n".join(lines)
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *memory.used*) echo "{memory}";; *query-gpu*) echo "{listed}";; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


def looked_at(folder: Path) -> dict[str, tuple[str, str]]:
    probe = Probe("cuda", folder, folder / "noted.json")
    with suppress(StageFailed):
        machine.machine(probe)
    return {check.name: (check.status, check.detail) for check in probe.checks}


def test_cards_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = CARD.format(driver="580.82.07")
    nvidia_smi(tmp_path, monkeypatch, card, card)
    checks = looked_at(tmp_path)
    assert checks["cards"] == (PASSED, "2 x NVIDIA H100 80GB HBM3")
    assert checks["driver"][0] == PASSED
    assert cards.count() == 2 and cards.used() == 1.0


@pytest.mark.parametrize(("driver", "cuda", "status"), [("550.54.15", "13.0", FAILED), ("550.54.15", "12.9", PASSED)])
def test_a_driver_must_go_with_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, cuda: str, status: str
) -> None:
    nvidia_smi(tmp_path, monkeypatch, CARD.format(driver=driver))
    monkeypatch.setattr(machine, "_cuda_of_torch", lambda: cuda)
    assert looked_at(tmp_path)["driver"][0] == status


def test_without_a_card_the_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, detail = looked_at(tmp_path)["cards"]
    assert status == FAILED and "no NVIDIA driver" in detail and "--device cpu" in detail


def test_no_environment_is_made_anew_for_another_device(tmp_path: Path) -> None:
    (tmp_path / "run_scripts").mkdir()
    shutil.copy(ROOT / "run_scripts" / "gpu_check.sh", tmp_path / "run_scripts")
    (tmp_path / ".venv" / ".spiral").mkdir(parents=True)
    for made, arguments in (("gpu", ["--device", "cpu"]), ("gpu", ["--device=cpu"]), ("cpu", [])):
        (tmp_path / ".venv" / ".spiral" / "kind").write_text(f"{made}\n")
        done = subprocess.run([tmp_path / "run_scripts" / "gpu_check.sh", *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and f".venv is for --{made}" in done.stderr
