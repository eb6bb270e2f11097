"""A worker that dies ends the run: soon, with the reason in the last line, and leaving nothing behind."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil
import pytest

from recipe.spiral.running.launch import _segments_of

from .conftest import Run, small

pytestmark = pytest.mark.e2e
SHARED_MEMORY = Path("/dev/shm")


def segments() -> set[str]:
    """Shared memory that nobody uses; what is in use is another run's."""
    if not SHARED_MEMORY.is_dir():
        return set()
    return {path.name for path in SHARED_MEMORY.iterdir()} - _segments_of(psutil.process_iter())


def test_a_dead_worker_ends_the_run(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    before = segments()
    run = Run(tmp_path / "run", *small(model, "trainer.total_training_steps=500", "trainer.val_before_train=false"))
    runs.append(run)
    run.wait_for(r"^step *2/500 ")
    left = run.descendants()
    run.find("RolloutWorker").kill()
    killed_at = time.monotonic()
    assert run.wait(60) == 1
    assert time.monotonic() - killed_at < 60
    assert run.last_line.startswith("spiral: ")
    # the watchdog knows which one it was; the trainer may meet the dead one first
    assert re.search("the rollout worker( 0)? died", run.last_line)
    assert not [process for process in left if process.is_running()]
    assert segments() <= before
