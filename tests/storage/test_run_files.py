"""The config, the changed settings and the metrics of a run's folder are read without a run, while they are written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from recipe.spiral.storage.run_files import METRICS, Logged, MetricsFile, load_config, read_metrics, setting


def test_a_setting_is_as_json_has_it() -> None:
    config = OmegaConf.create({"games": ["Nim"], "seed": "${nowhere}"})
    assert setting(config, "games") == ["Nim"] and type(setting(config, "games")) is list
    assert setting(config, "seed") is setting(config, "model.path") is setting(None, "games") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    for content in (b"a: [", b"\xff", b"7", b"[" * 5000):
        (tmp_path / "config.yaml").write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.yaml: is damaged: "):
            load_config(tmp_path / "config.yaml")
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.yaml")


def test_a_few_lines_cannot_stand_for_a_text_of_any_length(tmp_path: Path) -> None:
    file, names = tmp_path / "config.yaml", [f"a{number}" for number in range(60)]
    file.write_text("a: x\n" + "".join(f"a{name}: ${{{name}}}${{{name}}}\n" for name in ["a", *names]))
    assert setting(load_config(file), "a") == "x" and setting(load_config(file), "aa59") is None


def test_a_config_with_aliases_is_damaged(tmp_path: Path) -> None:
    """Some hundred bytes of them stand for gigabytes."""
    file = tmp_path / "config.yaml"
    file.write_text("a: &a [x, x]\nb: [*a, *a]\n")
    with pytest.raises(ValueError, match=r"config\.yaml"):
        load_config(file)


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
