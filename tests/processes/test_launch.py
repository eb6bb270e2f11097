"""A process of ours: signals end it like Ctrl-C, nothing is left of its children, and trackers write where it does."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from recipe.spiral.processes import interrupts, launch
from recipe.spiral.processes.interrupts import END_SIGNALS, Interrupt, interrupt_on_signals, interrupted_by
from recipe.spiral.processes.launch import clean_run, name_user, tracker_environment


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test changes is undone, and nothing came before."""
    monkeypatch.setattr(interrupts, "_received", [])
    monkeypatch.setattr(interrupts, "_last", float("-inf"))
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "name"), [(2, "Ctrl-C"), (15, "SIGTERM"), (1, "SIGHUP")])
def test_a_signal_is_an_interrupt_with_its_name(number: int, name: str) -> None:
    interrupt_on_signals()
    with pytest.raises(KeyboardInterrupt) as error:
        os.kill(os.getpid(), number)
    assert interrupted_by(error.value) == str(error.value) == name


def test_two_signals_at_once_are_one() -> None:
    """``timeout`` sends its own to the process and to its group."""
    interrupt_on_signals()
    with pytest.raises(Interrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupted_by() == "SIGTERM"


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """``nohup`` has a command ignore SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_on_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_no_child_outlives_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []
    this = SimpleNamespace(children=lambda recursive: started)
    known = SimpleNamespace(Process=lambda: this, wait_procs=psutil.wait_procs, Error=psutil.Error)
    with clean_run(tmp_path / "made"):
        started.append(psutil.Popen(["sleep", "60"]))
        monkeypatch.setattr(launch, "psutil", known)
    assert not started[0].is_running()


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
