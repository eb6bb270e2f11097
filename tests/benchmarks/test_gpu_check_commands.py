"""What the stages start on a GPU: each command composes, and passes all checks before a run. On a CPU they are run."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.gpu_check import programs, speed, training
from benchmarks.gpu_check.probe import Probe, read
from recipe.spiral.checks import check, check_model
from recipe.spiral.processes.launch import clean_run
from recipe.spiral.storage.metrics_file import Logged, MetricsFile
from tests.made_configs import composed_by, with_vllm_and_gpus

PROGRAMS = {"recipe.spiral.main_spiral": "spiral_trainer", "recipe.spiral.main_eval": "eval"}
#: The stages that start programs, with the number of trainings and evaluations of each.
STAGES = {
    training.train: 1,
    training.lora: 3,
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
    monkeypatch.setattr(speed, "_engine", lambda *arguments: None)

    def measured(*arguments: object) -> dict[str, float]:
        started.append(("measured", []))
        return {"play s": 1.0}

    monkeypatch.setattr(speed, "_of_run", measured)
    for name in ("_memory", "_check_games"):
        monkeypatch.setattr(speed, name, lambda *arguments: {})
    monkeypatch.setattr(speed, "used", lambda: 0.0)
    probe = Probe("cuda", tmp_path, tmp_path / "noted.json")
    with suppress(Exception):  # nothing was trained, so that there is nothing to look at
        stage(probe)

    composed = [(PROGRAMS[module], arguments) for module, arguments in started if module in PROGRAMS]
    assert len(composed) == STAGES[stage]
    if stage is speed.speed:  # nothing starts beside what is measured
        assert [module == "measured" for module, _ in started] == [False, True, False, True]
        assert probe.figures["fast: it was ready before it was measured"] is False
    monkeypatch.chdir(tmp_path)
    for program, arguments in composed:
        config = composed_by(program, arguments)
        if program == "spiral_trainer":
            check(config)
            if config.actor_rollout_ref.model.path is not None:
                check_model(config)
            assert config.trainer.device == "cuda"


def test_what_a_run_measured_is_noted_when_it_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two calls: the second one goes on after the checkpoint of step 1, and is ended in step 3."""
    probe = Probe("cuda", tmp_path, tmp_path / "noted.json")
    run = programs.Training(probe, "run", [])
    run.folder.mkdir()

    def logged(step: int, end: float) -> None:
        metrics = {
            "timing_s/step": 2.0,
            "timing_s/gen": 0.5,
            "actor/kl_loss": -0.1,
            programs.PROBABILITIES["correlation"]: 1.0,
        }
        MetricsFile(run.folder, lambda: end).log(metrics, step)

    def ended() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "start", lambda *arguments, **environment: SimpleNamespace(wait=ended))
    for now, step in ((1000.0, 1), (2000.0, 2)):
        monkeypatch.setattr(programs.time, "time", lambda now=now: now)
        run.start()
        logged(step, now + 152)
        with pytest.raises(KeyboardInterrupt):
            run.ends_well()
    noted = read(probe.file)["figures"]["run"]
    assert noted["seconds from the call to the first step"] == [150.0, 150.0]
    assert noted["seconds of the first step"] == noted["seconds of a step"] == {"step": 2.0, "gen": 0.5}
    assert noted["KL to the reference by step"] == [0.1, 0.1]
    assert noted["probabilities"]["correlation"] == [1.0, 1.0]


def test_a_process_that_is_left_is_named_and_the_stages_own_guard_is_not(tmp_path: Path) -> None:
    with clean_run(tmp_path):
        before = psutil.Process().children()
        assert before and training._alive(before) == []
        left = subprocess.Popen(["sleep", "60"])
        assert training._alive(before) == ["sleep"]
        left.kill()
        left.wait()


@pytest.mark.parametrize("memory", [40.0, None])
def test_a_row_of_the_speed_table_is_what_was_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: float | None
) -> None:
    """One game of 15 tokens in an update of 2 s; the peak is 1 TFLOP/s."""
    form = speed.SIZES[0].form
    (tmp_path / "config.json").write_text(json.dumps(form))
    monkeypatch.setattr("verl.utils.flops_counter.get_device_flops", lambda: 1.0)
    monkeypatch.setattr(speed, "games_of", lambda folder, step: [[([1] * 10, 5)]])
    metrics = {"timing_s/gen": 1.0, "timing_s/update_actor": 2.0, "timing_s/step": 4.0}
    metrics |= {} if memory is None else {"actor/perf/max_memory_allocated_gb": memory}
    run: Any = SimpleNamespace(folder=tmp_path, steps=lambda: [Logged(2, 0.0, dict(metrics))])
    row = speed._of_run(run, tmp_path, None)
    assert row.get("trainer's memory GiB") == memory
    # the model's 1.72e9 parameters, of which the embedding is tied: it multiplies as the head alone
    assert row["model flops utilisation"] == pytest.approx(6 * 1.72e9 * 15 / 2 / 1e12, rel=0.01)
