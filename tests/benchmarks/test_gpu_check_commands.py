"""What the stages start on a GPU: each command composes, and passes all checks before a run. On a CPU they are run."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_check import programs, speed, training
from benchmarks.gpu_check.probe import Probe
from recipe.spiral.checks import check, check_model, compose
from tests.made_configs import with_vllm_and_gpus

PROGRAMS = {"recipe.spiral.main_spiral": "spiral_trainer", "recipe.spiral.main_eval": "eval"}
#: The stages that start programs, with the number of trainings and evaluations of each.
STAGES = {
    training.train: 1,
    training.lora: 2,
    training.fp32: 1,
    training.two_cards: 1,
    speed.speed: 2,
}


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_commands_compose(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str]]] = []

    def small(folder: Path, tokens: int, form: Any, device: str) -> None:
        """A small model with as many positions as the form has."""
        copytree(training.tiny_model(), folder)
        config = json.loads((folder / "config.json").read_text())
        config["max_position_embeddings"] = form["max_position_embeddings"]
        (folder / "manifest.json").unlink()
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(config))

    def start(module: str, *arguments: str, **environment: str) -> SimpleNamespace:
        started.append((module, list(arguments)))
        return SimpleNamespace(wait=lambda: 0, poll=lambda: 0, send_signal=lambda number: None)

    with_vllm_and_gpus(monkeypatch)
    monkeypatch.setattr(programs, "start", start)
    monkeypatch.setattr(training, "count", lambda: 2)
    monkeypatch.setattr(training, "other_weights", lambda *arguments, **more: tmp_path)
    monkeypatch.setattr(speed, "gpu_memory", lambda: 80 * 2**30)
    monkeypatch.setattr(speed, "prepare", lambda device: None)
    monkeypatch.setattr(speed.long_answers, "make", small)
    probe = Probe("cuda", tmp_path, tmp_path / "noted.json")
    with suppress(Exception):  # nothing was trained, so that there is nothing to look at
        stage(probe)

    composed = [(PROGRAMS[module], arguments) for module, arguments in started if module in PROGRAMS]
    assert len(composed) == STAGES[stage]
    monkeypatch.chdir(tmp_path)
    for program, arguments in composed:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        [(config, _)] = compose(program)
        if program == "spiral_trainer":
            check(config)
            if config.actor_rollout_ref.model.path is not None:
                check_model(config)
            assert config.trainer.device == "cuda"
