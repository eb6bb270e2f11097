"""``recipe/spiral`` copied alone into a tree laid out as verl's repository is, with nothing of ours installed; and how
a run ends whose worker dies. A start takes most of a minute: both are seen in one run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psutil
import pytest

from recipe.spiral.running.launch import _segments_of

from .conftest import ROOT, Run, small

pytestmark = pytest.mark.e2e
SHARED_MEMORY = Path("/dev/shm")
OURS = ("verl_spiral", "__editable__", "recipe", "verl", "_verl_spiral")


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A tree with ``verl/`` and ``recipe/spiral/``, and a Python without the distribution verl-spiral."""
    tree = tmp_path_factory.mktemp("fork")
    verl = importlib.util.find_spec("verl")
    assert verl is not None and verl.origin is not None
    shutil.copytree(Path(verl.origin).parent, tree / "verl")
    shutil.copytree(
        ROOT / "recipe" / "spiral", tree / "recipe" / "spiral", ignore=shutil.ignore_patterns("__pycache__")
    )
    environment = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        # verl itself comes from the tree, its metadata stays
        if not entry.name.startswith(OURS) or entry.name.startswith("verl-"):
            (site / entry.name).symlink_to(entry)
    return tree, str(python)


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


def test_trains_until_a_worker_dies(fork: tuple[Path, str], tmp_path: Path, model: Path, runs: list[Run]) -> None:
    """A worker that dies ends the run: soon, with the reason in the last line, and leaving nothing behind."""
    tree, python = fork
    before = segments()
    overrides = small(
        model, "trainer.total_training_steps=500", "trainer.save_freq=1", "trainer.val_before_train=false"
    )
    run = Run(tmp_path / "run", *overrides, python=python, cwd=tree)
    runs.append(run)
    run.wait_for(r"^step *2/500 ")
    assert (tmp_path / "run/checkpoints/global_step_1/spiral.json").is_file()
    left = run.descendants()
    run.find("VLLMServer").kill()
    killed_at = time.monotonic()
    assert run.wait(60) == 1
    assert time.monotonic() - killed_at < 60
    assert run.last_line.startswith("spiral: ")
    # the watchdog knows which one it was; the trainer may meet the dead one first
    assert re.search(r"the vLLM server( 0\.0)? died", run.last_line)
    assert not [process for process in left if process.is_running()]
    assert segments() <= before


def segments() -> set[str]:
    """Shared memory that nobody uses; what is in use is another run's."""
    if not SHARED_MEMORY.is_dir():
        return set()
    return {path.name for path in SHARED_MEMORY.iterdir()} - _segments_of(psutil.process_iter())
