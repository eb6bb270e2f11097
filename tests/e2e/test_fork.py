"""``recipe/spiral`` copied alone into a tree laid out as verl's repository is, with nothing of ours installed. The run
of ``test_train_resume`` begins in such a tree, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import Run, kill_a_worker, small

pytestmark = pytest.mark.e2e


def test_composes_and_validates(fork: tuple[Path, str], tmp_path: Path) -> None:
    tree, python = fork
    facts = subprocess.run(
        [
            python,
            "-c",
            "import importlib.metadata as m, recipe.spiral, verl; print(recipe.spiral.__file__); print(verl.__file__); "
            "print([d.name for d in m.distributions() if d.name == 'verl-spiral'])",
        ],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    assert facts[0].startswith(str(tree)) and facts[1].startswith(str(tree)) and facts[2] == "[]"
    composed = subprocess.run(
        [python, "-m", "recipe.spiral.main_spiral", "+experiment=kuhn", "--cfg", "job", "--resolve"],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "adv_estimator: rae" in composed.stdout and "experiment_name: kuhn" in composed.stdout
    for override, message in (("games=[Chess]", "unknown game 'Chess'"), ("+fsp.sze=3", "did you mean `fsp.size`?")):
        refused = subprocess.run(
            [python, "-m", "recipe.spiral.main_spiral", override, f"run_dir={tmp_path}"],
            cwd=tree,
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 2
        assert message in refused.stderr.splitlines()[-1]


@pytest.mark.full
def test_trains_until_a_worker_dies(fork: tuple[Path, str], tmp_path: Path, model: Path, runs: list[Run]) -> None:
    tree, python = fork
    overrides = small(
        model, "trainer.total_training_steps=500", "trainer.save_freq=1", "trainer.val_before_train=false"
    )
    run = Run(tmp_path / "run", *overrides, python=python, cwd=tree)
    runs.append(run)
    kill_a_worker(run, after=r"^step *2/500 ")
    assert list((tmp_path / "run/checkpoints").glob("global_step_*/spiral.json"))
