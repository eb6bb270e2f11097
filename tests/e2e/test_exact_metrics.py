"""Exact metrics of a run's validations are those that ``main_eval`` computes of the checkpoint of the same step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import LIMIT, ROOT, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_live_metrics_are_those_of_the_checkpoint(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    overrides = small(
        model,
        "games=[TicTacToe,KuhnPoker]",
        "validation.exploitability=[KuhnPoker]",
        "validation.optimality=[TicTacToe]",
        "trainer.total_training_steps=2",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "actor_rollout_ref.actor.optim.lr=1e-3",
    )
    run = Run(tmp_path / "run", *overrides)
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    files = sorted((tmp_path / "run").glob("metrics-*.jsonl"))
    entries = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    live = {entry["step"]: entry["data"] for entry in entries if "val-core/KuhnPoker/nash_conv" in entry["data"]}
    assert sorted(live) == [0, 1, 2]
    assert "validation at step 2: KuhnPoker " in run.output and "p0/lost to perfect" in run.output

    arguments = [
        f"policies=[{{name: run, path: '{tmp_path / 'run'}'}}]",
        "opponents=[]",
        "match_ups=[]",
        "exploitability.games=[KuhnPoker]",
        "optimality.games=[TicTacToe]",
        f"eval_dir='{tmp_path / 'eval'}'",
    ]
    command = [sys.executable, "-m", "recipe.spiral.main_eval", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    results: dict[str, Any] = json.loads((tmp_path / "eval/results.json").read_text())
    nash_conv = {row["policy"]: row for row in results["exploitability"]}
    optimal = {row["policy"]: row for row in results["optimality"]}
    for step in (1, 2):
        metrics, name = live[step], f"run/step_{step:06d}"
        kuhn, tictactoe = nash_conv[name], optimal[name]
        for key in ("nash_conv", "value"):
            assert metrics[f"val-core/KuhnPoker/{key}"] == pytest.approx(kuhn[key], abs=1e-6)
        assert metrics["val-core/KuhnPoker/illegal"] == pytest.approx(kuhn["illegal"][0], abs=1e-6)
        assert metrics["val-core/TicTacToe/optimal"] == pytest.approx(tictactoe["optimal"]["share"], abs=1e-6)
        lost = [metrics[f"val-core/TicTacToe/p{role}/lost_to_perfect"] for role in (0, 1)]
        assert lost == pytest.approx(tictactoe["lost_to_perfect"], abs=1e-6)
    assert live[1]["val-core/KuhnPoker/nash_conv"] != live[2]["val-core/KuhnPoker/nash_conv"]
    print({step: data["val-aux/TicTacToe/exact_seconds"] for step, data in live.items()})
