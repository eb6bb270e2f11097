"""A run that changes between the CPU's versions of torch, vLLM and transformers and those that GPUs have, both ways."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
PYTHONS = [ROOT / ".venv" / "bin" / "python", ROOT / ".venv-gpu-versions" / "bin" / "python"]
STEPS = 3


def torch_of(python: Path) -> str:
    command = [python, "-c", "import importlib.metadata as m; print(m.version('torch').split('+')[0])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(
    not all((python.parents[1] / ".spiral" / "project").exists() for python in PYTHONS),
    reason="wants .venv (run_scripts/setup.sh) and .venv-gpu-versions (run_scripts/setup.sh --gpu-versions)",
)
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_run_goes_on_in_the_other_environment_and_back(
    tmp_path: Path, model: Path, runs: list[Run], kind: str
) -> None:
    """The weights and the optimizer's state arrive, and the audit, which knows nothing of versions, finds one run."""
    torches = [torch_of(python) for python in PYTHONS]
    assert torches[0] != torches[1]
    for step, python in enumerate([PYTHONS[0], PYTHONS[1], PYTHONS[0]], start=1):
        lora = ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"]
        run = Run(
            tmp_path / "run",
            *small(model, "seed=3", f"trainer.total_training_steps={step}", "trainer.save_freq=1"),
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            *(lora if kind == "lora" else []),
            python=str(python),
        )
        runs.append(run)
        assert run.wait() == 0, run.output[-4000:]
        saved = json.loads((tmp_path / "run" / "checkpoints" / f"global_step_{step}" / "spiral.json").read_text())
        assert saved["torch"].split("+")[0] == torch_of(python)
        if step > 1:
            assert f"going on after step {step - 1} of {step}" in run.output
    lines = [json.loads(line)["data"] for file in (tmp_path / "run").glob("metrics-*.jsonl") for line in file.open()]
    trained = [line for line in lines if "training/rollout_probs_diff_max" in line]
    assert len(trained) == STEPS
    assert all(line["training/rollout_probs_diff_max"] < 1e-3 for line in trained), (
        "the engine has the trainer's weights"
    )
