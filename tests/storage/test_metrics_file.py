"""A run's metrics in its folder: whole lines, cut back on resume, readable while they are written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from recipe.spiral.storage.disk import LineFile
from recipe.spiral.storage.run_files import METRICS, Logged, MetricsFile, read_metrics


def logged(run_dir: Path, start: int = 0) -> list[Logged]:
    return [line for line, _ in read_metrics(run_dir / METRICS, start)]


def test_what_is_logged_is_read_again(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "run", clock=lambda: 12.3456)
    file.log({"a": 0.1234567891, "b": np.float32(2), "c": torch.tensor(3), "d": 4, "text": "1", "table": [1, 2]}, 1)
    file.log({"a": float("nan"), "b": np.inf}, 2)
    assert logged(tmp_path / "run") == [
        Logged(1, 12.346, {"a": 0.12345679, "b": 2.0, "c": 3.0, "d": 4.0}),
        Logged(2, 12.346, {"a": None, "b": None}),
    ]
    for line in (tmp_path / "run" / METRICS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: 1 / 0)


def test_a_resumed_run_removes_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    file.cut_back(0)
    for step in range(4):
        file.log({"a": step}, step)
    file.cut_back(2)
    file.log({"a": 30}, 3)
    assert [(line.step, line.metrics["a"]) for line in logged(tmp_path)] == [(0, 0), (1, 1), (2, 2), (3, 30)]


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    file.log({"a": 1}, 1)
    with (tmp_path / METRICS).open("ab") as lines:
        lines.write(b'\xff\n[]\n{"step": 9}\n\n{"step": 9, "time": 1.0, "metrics": {"a": "text"}}\n')
        lines.write(b'{"step": 2, "time": 1.0, "metr')
    assert [line.step for line in logged(tmp_path)] == [1]
    file.log({"a": 3}, 3)
    assert [line.step for line in logged(tmp_path)] == [1, 3], "the next line does not hang on the torn one"


def test_a_line_is_whole_after_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("whole\nhal")
    LineFile(tmp_path / "lines").append("new")
    assert (tmp_path / "lines").read_text() == "whole\nhal\nnew\n"
