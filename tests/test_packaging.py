"""What a user gets from `pip install`: the wheel and the sdist hold the recipe with its YAML files.

`recipe` stays a namespace package in both, so that it merges with the `recipe/` of a verl fork.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
    for typo in ("fsp.sze=3", "+experiment=khun"):
        refused = run(typo)
        assert refused.returncode == 1 and "Traceback" not in refused.stderr, refused.stderr


@pytest.mark.parametrize("program", ["main_spiral", "report", "games.check"])
def test_a_python_without_the_packages_is_one_line(program: str) -> None:
    """-S: no packages but Python's own."""
    command = [sys.executable, "-S", "-m", f"recipe.spiral.{program}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env={})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("spiral: its packages are not here: run_scripts/setup.sh")
    assert len(result.stderr.splitlines()) == 1
