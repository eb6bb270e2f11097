"""One run a folder, nothing left of a command's children, and an environment in which the user's word comes first."""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from recipe.spiral.processes import launch
from recipe.spiral.processes.launch import (
    clean_run,
    end_processes,
    is_in_use,
    name_user,
    only_one,
    tracker_environment,
)
from recipe.spiral.storage.disk import WITHOUT_LOCKS, InUse

HOLDS = """
import sys, time
from pathlib import Path
from recipe.spiral.processes.launch import only_one
with only_one(Path(sys.argv[1])): print(1, flush=True); time.sleep(60)
"""


def test_a_folder_is_one_runs(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path)
    first = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None and first.stdout.readline() and is_in_use(tmp_path)
        with pytest.raises(InUse, match=f"run_dir.*process {first.pid} "), only_one(tmp_path):
            pytest.fail("two runs in one folder")
    finally:
        first.kill()
        first.wait()
    assert not is_in_use(tmp_path)
    with only_one(tmp_path):
        pass


def test_a_folder_without_locks_is_refused_unless_the_user_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(InUse, match=WITHOUT_LOCKS), only_one(tmp_path):
        pytest.fail("two runs in one folder")
    monkeypatch.setenv(WITHOUT_LOCKS, "1")
    with only_one(tmp_path):
        assert is_in_use(tmp_path)


def test_no_child_outlives_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []
    this = SimpleNamespace(children=lambda recursive: started)
    known = SimpleNamespace(Process=lambda: this, wait_procs=psutil.wait_procs, Error=psutil.Error)
    with clean_run(tmp_path / "made"):
        started.append(psutil.Popen(["sleep", "60"]))
        monkeypatch.setattr(launch, "psutil", known)
    assert not started[0].is_running()
    end_processes(started)  # there is none any more


def test_trackers_write_into_the_folder_and_take_all_its_starts_for_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    first, again = tracker_environment(tmp_path), tracker_environment(tmp_path)
    assert first["WANDB_RUN_ID"] == again["WANDB_RUN_ID"] and first["WANDB_MODE"] == "offline"
    assert first["WANDB_DIR"] == str(tmp_path) and first["TENSORBOARD_DIR"].startswith(str(tmp_path))
    for host, mode in (("github.com", "offline"), ("api.wandb.ai", None)):
        (tmp_path / ".netrc").write_text(f"machine {host} login user password {'x' * 40}\n")
        (tmp_path / ".netrc").chmod(0o600)
        assert tracker_environment(tmp_path).get("WANDB_MODE") == mode


def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: torch asks for the name, and fails without one."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    name_user()
    assert getpass.getuser() and Path.home().is_dir()
    for name in ("USER", "HOME"):
        monkeypatch.delenv(name)
