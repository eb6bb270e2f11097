"""The picture of which processes use the cores."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.timeline import draw, look
from recipe.spiral.lab.profile.tracing import CannotTrace


def test_a_picture_is_drawn_of_any_number_of_processes(tmp_path: Path) -> None:
    looks = [(0.1 * place, Counter({f"process {number}": number / 50 for number in range(10)})) for place in range(20)]
    draw([*looks, (2.0, Counter())], [0.0, 1.0, 2.0], tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_must_be_under_way(tmp_path: Path) -> None:
    with pytest.raises(CannotTrace, match="no run is under way there"):
        look(tmp_path, 1)
