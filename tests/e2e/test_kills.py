"""Whatever process of a run is killed, the run ends with its name and leaves nothing, and the next start goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from recipe.spiral.storage.checkpoints import latest

from .conftest import Left, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: What is killed, by a part of its command line (None: the process that was started), and what the last line then has.
VICTIMS = {
    "raylet": "",
    "gcs_server": None,  # Ray ends the process itself
    "VLLMServer": "vllm_server_0_0",
    "WorkerDict": "WorkerDict",
    "TaskRunner": "TaskRunner",
    "EngineCore": "vllm_server_0_0: EngineDeadError",
    None: None,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_saves_a_checkpoint_first(
    tmp_path: Path, model: Path, runs: list[Run], number: signal.Signals
) -> None:
    overrides = small(model, "trainer.total_training_steps=2000", "trainer.save_freq=1000", "trainer.test_freq=1000")
    run = Run(tmp_path / "run", *overrides)
    runs.append(run)
    run.wait_for(r"^step +2/2000 ")
    left = Left(run)
    os.killpg(run.process.pid, number)  # as a terminal and `timeout` do
    assert run.wait() == 130, run.output[-4000:]
    step = latest(tmp_path / "run" / "checkpoints")
    assert step is not None and 2 <= step < 1000
    assert run.last_line.endswith(f"from step {step}") and left.gone(30) == []
    print(f"{number!r}: {run.last_line}")


def test_whoever_dies_nothing_is_left_and_the_run_goes_on(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    """One run, which is killed at another place in each of its starts."""
    overrides = small(model, "trainer.total_training_steps=500", "trainer.save_freq=1", "trainer.test_freq=-1")
    run_dir, steps = tmp_path / "run", [0]
    for victim, said in VICTIMS.items():
        run = Run(run_dir, *overrides)
        runs.append(run)
        run.wait_for(rf"^step +{steps[-1] + 2}/500 ")
        left, killed = Left(run), time.monotonic()
        if victim is None:
            run.process.kill()
        else:
            run.find(victim).kill()
        status = run.wait(120)
        ended = time.monotonic() - killed
        remains = left.gone(120)  # agents of Ray's take more than a minute
        print(f"{victim}: status {status} after {ended:.1f} s, all gone after {time.monotonic() - killed:.1f} s")
        print(f"  {run.last_line[:300]}")
        assert remains == []
        assert status == (-signal.SIGKILL if victim is None else 1), run.output[-4000:]
        assert said is None or (run.last_line.startswith("spiral: ") and said in run.last_line)
        step = latest(run_dir / "checkpoints")
        assert step is not None and step > steps[-1]
        steps.append(step)
