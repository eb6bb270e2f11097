"""Scripts hand a preset and the user's arguments on; with --dry-run no environment for GPUs is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.e2e


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The scripts, with a set-up that only notes its arguments and a Python that prints its own."""
    shutil.copytree(ROOT / "run_scripts", tmp_path / "run_scripts")
    (tmp_path / "run_scripts" / "setup.sh").write_text('#!/bin/sh\necho "$@" >>setup.txt\n')
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    python.chmod(0o755)
    return tmp_path


def run(project: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "BASE")}
    command = [str(project / "run_scripts" / script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd="/", env={**environment, **variables}
    )


@pytest.mark.parametrize(("dry", "kind"), [([], "--gpu\n"), (["--dry-run"], "\n")], ids=["train", "dry run"])
def test_a_preset_and_the_arguments_are_handed_on(project: Path, dry: list[str], kind: str) -> None:
    given = json.loads(run(project, "train.sh", "paper_lora", *dry, "seed=3", "games=[Nim, TicTacToe]").stdout)
    more = ["dry_run=true"] if dry else []
    command = ["-m", "recipe.spiral.main_spiral", "+experiment=paper_lora"]
    assert given == [*command, *more, "seed=3", "games=[Nim, TicTacToe]"]
    assert (project / "setup.txt").read_text() == kind


def test_what_a_job_of_slurm_needs_is_refused_elsewhere(project: Path) -> None:
    done = run(project, "slurm.sh", SLURM_JOB_NODELIST="")
    assert done.returncode == 2 and "SLURM_JOB_NODELIST" in done.stderr and len(done.stderr.splitlines()) == 1


def test_others_cannot_read_the_secret_of_a_cluster(project: Path) -> None:
    binaries, home = project / ".venv" / "bin", project / "home"
    (binaries / "activate").write_text(f"PATH={binaries}:$PATH\numask 022\n")
    (binaries / "ray").write_text("#!/bin/sh\nmkdir ~/.ray\necho a secret >~/.ray/auth_token\n")
    (binaries / "ray").chmod(0o755)
    home.mkdir()
    run(project, "slurm.sh", SLURM_JOB_NODELIST="a", HOME=str(home))  # it ends where SLURM does not answer
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0


def test_the_benchmarks_are_asked_of_the_base_model_and_then_of_the_trained_one(project: Path) -> None:
    before = json.loads(run(project, "paper_benchmarks.sh").stdout)
    tracker = project / "outputs/spiral/paper/checkpoints/latest_checkpointed_iteration.txt"
    tracker.parent.mkdir(parents=True)
    tracker.write_text("40")
    after = json.loads(run(project, "paper_benchmarks.sh", "outputs/spiral/paper/", "benchmarks.limit=5").stdout)
    asked = [next(word for word in given if word.startswith("policies=")) for given in (before, after)]
    assert ["trained" in policies for policies in asked] == [False, True]
    assert {"eval_dir=outputs/spiral/paper-benchmarks"} <= {*before} & {*after} and after[-1] == "benchmarks.limit=5"
