"""A real sweep: a job whose engine does not start, and one that trains a step in its own process; then all is done."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from .conftest import Run, small

#: A prompt does not fit into the first.
CACHE = "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
pytestmark = [pytest.mark.e2e, pytest.mark.full]


def sweep(folder: Path, model: Path) -> Run:
    overrides = small(model, "trainer.total_training_steps=1", "trainer.save_freq=1", "trainer.test_freq=1")
    return Run(folder, "hydra.mode=MULTIRUN", "games=[KuhnPoker]", f"{CACHE}=100000,100000000", *overrides)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as rows:
        return list(csv.DictReader(rows))


def test_a_sweep_goes_on_after_a_failed_job_and_is_resumed(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    runs.append(first := sweep(tmp_path / "sweep", model))
    assert first.wait() == 1, first.output[-4000:]
    bad, good = table(tmp_path / "sweep")
    assert bad["status"] == "failed" and "KV cache is needed" in bad["message"]
    assert (good["status"], good["steps"], good["message"]) == ("ok", "1", "")
    for role in (0, 1):
        for when in ("before", "after"):
            assert 0 <= float(good[f"KuhnPoker/p{role}/win_{when}"]) <= 1
    assert (tmp_path / f"sweep/{CACHE}=100000000/checkpoints/global_step_1/spiral.json").is_file()
    assert f"[{CACHE}=100000000] step 1/1 " in first.output

    runs.append(second := sweep(tmp_path / "sweep", model))
    assert second.wait() == 1, second.output[-4000:]
    assert "2 jobs, 1 at once, 1 done before" in second.output
    assert f"[{CACHE}=100000000]" not in second.output
    assert table(tmp_path / "sweep")[1] == good
