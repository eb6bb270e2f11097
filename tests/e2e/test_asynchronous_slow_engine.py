"""An asynchronous run whose engine is slow: the learner waits for games, and each of these is accounted for."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.watching.game_metrics import staleness
from recipe.spiral.processes.composing import detect_hardware

from .conftest import Run
from .counted import audit, count
from .test_asynchronous import asynchronous, steps_of
from .test_asynchronous_combined import metrics

pytestmark = [pytest.mark.e2e, pytest.mark.full]

STEPS = 8
#: vLLM's worker, which takes this much longer for each token, in which it computes nothing.
SLOW = """
import time

from recipe.spiral.workers.platforms.{module} import {base}


class Slow({base}):
    def execute_model(self, *args, **kwargs):
        time.sleep(0.2)
        return super().execute_model(*args, **kwargs)
"""
WORKERS = {"cpu": ("cpu_vllm", "CPUWorker"), "gpu": ("gpu_vllm", "Worker")}


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_a_slow_engine_holds_up_the_learner_and_loses_no_game(tmp_path: Path, runs: list[Run], mode: str) -> None:
    """A turn takes a second, and a step waits for its games many times as long as it trains."""
    module, base = WORKERS[detect_hardware()]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "slow.py").write_text(SLOW.format(module=module, base=base), encoding="utf-8")
    settings = asynchronous(
        embedded("tiny", ["KuhnPoker", "TicTacToe"]),
        mode,
        "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_cls=mine.slow.Slow",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=4",
        "actor_rollout_ref.actor.optim.lr=1e-5",
    )
    run = Run(tmp_path / "run", *settings, cwd=tmp_path)
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    assert count(run.run_dir) == "each once" and audit(run.run_dir) == "ok"
    steps = steps_of(run.run_dir)
    assert list(steps) == list(range(1, STEPS + 1))
    turns = [turn.tokens for records in steps.values() for record in records for turn in record.turns]
    versions = [turn.weight_versions for turn in turns if turn is not None and turn.weight_versions is not None]
    assert any(first < last for first, last in versions), "updates came in the middle of responses"
    for step, records in steps.items():
        assert all(record.discarded is None and staleness(record, step) <= 4 for record in records)
    spans, seconds = sum(first < last for first, last in versions), median(logged(run.run_dir, "timing_s/step"))
    games = sum(map(len, steps.values()))
    print(f"{mode}: {games} games, {len(versions)} turns, {spans} span an update, {seconds:.1f} s a step")


def logged(run_dir: Path, name: str) -> list[float]:
    """A metric of each step that has it."""
    return [step[name] for step in metrics(run_dir) if name in step]
