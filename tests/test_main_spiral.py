"""The entry point: what it says of a config that cannot run, and that it says so at once."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral import extensions

ROOT = Path(__file__).resolve().parents[1]
#: Runs the entry point and tells which of the libraries that take seconds to import were imported.
PROGRAM = """
import sys
from recipe.spiral.main_spiral import main

try:
    main()
finally:
    print([name for name in ("torch", "transformers", "ray", "verl", "vllm") if name in sys.modules])
"""


def start(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PROGRAM, *arguments, "hardware=cpu", f"run_dir={tmp_path / 'run'}"]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "status", "setting"),
    [
        ("model=tiny games=[Nope]", 2, "spiral: unknown game 'Nope'"),
        ("model=tiny fsp.ratio=2", 2, "spiral: fsp.ratio="),
        ("seed=1", 2, "spiral: actor_rollout_ref.model.path "),
        ("model=tiny fsp.siez=2", 1, "fsp.siez"),
        ("+experiment=nope", 1, "nope"),
    ],
)
def test_a_bad_setting_is_refused_before_anything_large_is_imported(
    tmp_path: Path, arguments: str, status: int, setting: str
) -> None:
    done = start(tmp_path, *arguments.split())
    assert (done.returncode, done.stdout) == (status, "[]\n"), done.stderr
    assert setting in done.stderr and "Traceback" not in done.stderr


@pytest.mark.e2e
def test_a_job_of_a_multirun_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    done = start(tmp_path, "-m", "model=tiny", "games=[Nope],[Nim]", "fsp.ratio=2")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.count("spiral: fsp.ratio=2") == 2
    folders = [f"fsp.ratio=2,games={game},hardware=cpu,model=tiny" for game in ("Nim", "Nope")]
    assert sorted(folder.name for folder in (tmp_path / "run").iterdir() if folder.is_dir()) == folders


def test_an_extension_is_made_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(extensions.NAMES, "")
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.create({"extensions": ["my_rewards"]})
    with pytest.raises(ImportError, match="my_rewards"):
        extensions.choose(config, print)
    (tmp_path / "my_rewards.py").write_text("class Extension: pass\n")
    importlib.invalidate_caches()
    [mine] = extensions.choose(config, print)
    assert [one is mine for one in extensions.loaded()] == [True], "so that it may remember something"
    del sys.modules["my_rewards"]
