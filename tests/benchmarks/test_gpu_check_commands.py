"""What the stages start on a GPU: each command composes, and passes all checks before a run. On a CPU they are run."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_check import programs, qwen3, training
from benchmarks.gpu_check.probe import Probe
from recipe.spiral.checks import check, compose
from tests.made_configs import with_vllm_and_gpus

PROGRAMS = {"recipe.spiral.main_spiral": "spiral_trainer", "recipe.spiral.main_eval": "eval"}
#: The stages that start programs, with the number of trainings and evaluations of each.
STAGES = {
    training.train: 1,
    training.lora: 2,
    training.evaluate: 1,
    training.logprobs: 2,
    training.two_cards: 1,
    qwen3.small: 1,
    qwen3.large: 1,
}


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_commands_compose(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str]]] = []

    def start(module: str, *arguments: str) -> SimpleNamespace:
        started.append((module, list(arguments)))
        return SimpleNamespace(wait=lambda: 0, poll=lambda: 0, send_signal=lambda number: None)

    async def alone(*arguments: object) -> float:
        return 1.0

    with_vllm_and_gpus(monkeypatch)
    monkeypatch.setattr(programs, "start", start)
    monkeypatch.setattr(training, "used", lambda: 0.0)
    monkeypatch.setattr(training, "count", lambda: 2)
    monkeypatch.setattr(training, "other_weights", lambda *arguments, **more: tmp_path)
    monkeypatch.setattr(training, "adapter", lambda *arguments, **more: tmp_path)
    monkeypatch.setattr(qwen3, "make", lambda *arguments: training.tiny_model())
    monkeypatch.setattr(qwen3, "_alone", alone)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda card: SimpleNamespace(total_memory=80 * 2**30))
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
            assert config.trainer.device == "cuda"
