"""The GPUs that CUDA may use, by a made driver: those that CUDA_VISIBLE_DEVICES names, slices of cards, and none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recipe.spiral.lab.planning import devices

GIB = 2**30
#: A large card, one for screens, and one that MIG has divided.
CARDS = """\
0, GPU-1111aaaa-0000-0000-0000-000000000000, 81559, 1024, Disabled
1, GPU-2222bbbb-0000-0000-0000-000000000000, 4096, 3072, [N/A]
2, GPU-3333cccc-0000-0000-0000-000000000000, 40960, 0, Enabled
"""
LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1111aaaa-0000-0000-0000-000000000000)
GPU 1: NVIDIA T400 4GB (UUID: GPU-2222bbbb-0000-0000-0000-000000000000)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-3333cccc-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaa0000-0000-0000-0000-000000000000)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-bbbb0000-0000-0000-0000-000000000000)
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncase $1 in -L) cat <<'EOF'\n{LISTED}EOF\n;; *) cat <<'EOF'\n{CARDS}EOF\n;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return program


@pytest.mark.parametrize(
    ("visible", "indices", "smallest"),
    [
        (None, "012", 4.0),
        ("", "012", 4.0),
        ("0", "0", 81559 / 1024),
        (" 1, 0", "10", 4.0),
        ("GPU-1111aaaa", "0", 81559 / 1024),
        ("2", "2", 5 * 0.95),
        ("MIG-aaaa0000-0000-0000-0000-000000000000", "2", 20 * 0.95),
        ("0,MIG-aaaa0000-0000-0000-0000-000000000000", "02", 20 * 0.95),
        ("MIG-aaaa0000-0000-0000-0000-000000000000,0", "20", 20 * 0.95),
        ("7", "", None),
    ],
)
def test_only_what_cuda_may_use_counts(
    driver: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, indices: str, smallest: float | None
) -> None:
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(devices.VISIBLE, visible)
    assert "".join(card.index for card in devices.cards()) == indices
    found = devices.gpu_memory()
    assert found is None if smallest is None else found == pytest.approx(smallest * GIB, rel=1e-6)


def test_what_others_use(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    assert devices.gpu_in_use() == 3 * GIB
    monkeypatch.setenv(devices.VISIBLE, "2")
    assert devices.gpu_in_use() == 0


@pytest.mark.parametrize("said", ["echo no devices were found; exit 6", "exit 9", "echo '0, GPU-1, [N/A], [N/A], -'"])
def test_without_cards_nothing_is_known(driver: Path, said: str) -> None:
    driver.write_text(f"#!/bin/sh\n{said}\n")
    assert devices.gpu_memory() is None and devices.gpu_in_use() == 0
    driver.unlink()
    assert devices.gpu_in_use() == 0
