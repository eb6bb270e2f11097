"""The entry point: a config that cannot run is refused at once; what signals do, and what is said of errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes import interrupts
from recipe.spiral.processes.interrupts import END_SIGNALS, STOP, Interrupt
from recipe.spiral.processes.run_log import RUN_DIR
from recipe.spiral.running import SAVE_LIMIT, Ending, forward_environment
from tests.made_configs import config

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


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_received", [])
    monkeypatch.setattr(interrupts, "TOGETHER", -1.0)
    before = {number: signal.getsignal(number) for number in (*END_SIGNALS, signal.SIGALRM)}
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def ending(tmp_path: Path, said: list[str], trains: bool = True, save_freq: int = 4) -> Ending:
    trainer = {"save_freq": save_freq, "default_local_dir": str(tmp_path / "checkpoints")}
    setup = OmegaConf.create({"run_dir": str(tmp_path), "trainer": trainer})
    follow: Any = SimpleNamespace(trains=trains, step_seconds=486.0, say=said.append)
    made = Ending(setup, follow)
    made.take_signals()
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_a_second_one_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    made = ending(tmp_path, said := [])
    os.kill(os.getpid(), number)
    assert (tmp_path / STOP).exists() and made.by in ("Ctrl-C", "SIGTERM") and "8m06s" in said[0]
    with pytest.raises(Interrupt):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("how", [{"trains": False}, {"save_freq": -1}])
def test_where_there_is_nothing_to_save_a_signal_ends_at_once(tmp_path: Path, how: dict[str, Any]) -> None:
    ending(tmp_path, [], **how)
    with pytest.raises(Interrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not (tmp_path / STOP).exists()


def test_sigterm_has_a_limit_and_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAVE_LIMIT, "0.05")
    (tmp_path / "checkpoints" / "global_step_4").mkdir(parents=True)
    ending(tmp_path, [])
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupt, match=r"SIGTERM, and no checkpoint.*SPIRAL_SAVE_LIMIT"):
        time.sleep(10)


def test_a_death_ends_the_wait(tmp_path: Path) -> None:
    """By a KeyboardInterrupt, which alone Ray lets through where it waits."""
    made = ending(tmp_path, [])
    with pytest.raises(KeyboardInterrupt):
        made.end_with(ZeroDivisionError())
        time.sleep(10)
    assert isinstance(made.failure, ZeroDivisionError)


def test_values_of_the_environment_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl prints what it passes on; on this machine they are inherited."""
    for name, value in (("GH_PAT", "hunter2"), ("MINE", "hunter2"), ("PLAIN", "plain"), (RUN_DIR, str(tmp_path))):
        monkeypatch.setenv(name, value)
    setup = config(tmp_path)
    for name, value in (("MINE", "${oc.env:GH_PAT}"), ("PLAIN", "plain")):
        OmegaConf.update(setup, f"environment.{name}", value, force_add=True)
    forward_environment(setup, [])
    passed = setup.ray_kwargs.ray_init.runtime_env.env_vars
    assert passed.PLAIN == "plain" and "MINE" not in passed and passed[RUN_DIR] == str(tmp_path)
