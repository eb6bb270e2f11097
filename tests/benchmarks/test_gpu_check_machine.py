"""What the check says of a machine: its cards by a made nvidia-smi, and its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu_check import cards, machine
from benchmarks.gpu_check.probe import FAILED, PASSED, Probe, StageFailed

ROOT = Path(__file__).resolve().parents[2]
#: What the recipe asks of each card.
USED = "0, GPU-aa, 81559, 1024, Disabled\n1, GPU-bb, 81559, 2048, Disabled"
CARD = "NVIDIA H100 80GB HBM3, 81559 MiB, {driver}, 9.0, Disabled, 5"
T4 = "Tesla T4, 15360 MiB, 580.82.07, 7.5, [N/A], 3"


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, memory: str = USED, status: int = 0) -> None:
    """Put a made nvidia-smi on the path."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    listed = "\n".join(lines)
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *memory.used*) echo "{memory}";; *query-gpu*) echo "{listed}";; esac\nexit {status}\n'
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


@pytest.mark.parametrize("others", [[], [CARD.format(driver="580.82.07")]])
@pytest.mark.parametrize("said", ["No devices were found", "Unable to determine the device handle for GPU0: lost"])
@pytest.mark.parametrize("status", [0, 255])
def test_what_is_said_in_place_of_a_card_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, others: list[str], status: int
) -> None:
    nvidia_smi(tmp_path, monkeypatch, *others, said, status=status)
    checks = looked_at(tmp_path)
    assert checks["cards"][0] == FAILED and f"nvidia-smi says {said}" in checks["cards"][1]
    assert "driver" not in checks


def test_a_warning_is_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:B3:00.0"
    nvidia_smi(tmp_path, monkeypatch, CARD.format(driver="580.82.07"), warning, status=14)
    checks = looked_at(tmp_path)
    assert checks["cards"] == (PASSED, "1 x NVIDIA H100 80GB HBM3") and checks["compute capability"][0] == PASSED
    assert cards.count() == 2


@pytest.mark.parametrize("driver", ["[N/A]", "550.54.15"])
def test_every_cards_driver_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    monkeypatch.setattr(machine, "_cuda_of_torch", lambda: "13.0")
    nvidia_smi(tmp_path, monkeypatch, CARD.format(driver="580.82.07"), CARD.format(driver=driver))
    status, detail = looked_at(tmp_path)["driver"]
    assert status == FAILED and driver in detail


@pytest.mark.parametrize("capability", ["7.5", "[N/A]"])
def test_every_card_must_compute_in_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    nvidia_smi(tmp_path, monkeypatch, CARD.format(driver="580.82.07"), T4.replace("7.5", capability))
    status, detail = looked_at(tmp_path)["compute capability"]
    assert status == FAILED and capability in detail


def test_cards_that_cuda_may_not_use_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, CARD.format(driver="580.82.07"))
    program = tmp_path / "bin" / "nvidia-smi"
    program.write_text(program.read_text().replace("esac", f'esac\necho "$*" >>{tmp_path / "asked"}'))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert looked_at(tmp_path)["cards"][0] == PASSED and "--id=GPU-bb" in (tmp_path / "asked").read_text()
    assert cards.count() == 1 and cards.used() == 2.0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert cards.count() == 2 and cards.used() == 2.0, "of the first one in CUDA's order"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    status, detail = looked_at(tmp_path)["cards"]
    assert status == FAILED and "nothing of CUDA_VISIBLE_DEVICES=5" in detail


def test_emulated_bfloat16_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name="Tesla T4", total_memory=0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    probe = Probe("cuda", tmp_path, tmp_path / "noted.json")
    with suppress(Exception):  # there is no card to compute on
        machine._compute(probe)
    assert {check.name: check.status for check in probe.checks}["bfloat16"] == FAILED


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


def test_memory_of_a_card_is_that_of_own_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for others, memory in ((f"{os.getpid()}, 2048", 2.0), ("", None)):
        program.write_text(f'#!/bin/sh\necho "1, 4096\n{others}"\n')
        program.chmod(0o755)
        assert cards.held() == memory
