"""A process of ours: signals end it like Ctrl-C, nothing is left of its children, and trackers write where it does."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.lab.opponents.api_settings import API, refuse_environment
from recipe.spiral.processes import interrupts
from recipe.spiral.processes.composing import as_written, detect_hardware
from recipe.spiral.processes.interrupts import END_SIGNALS, Interrupt, interrupt_on_signals, interrupted_by
from recipe.spiral.processes.launch import ask_wandb, name_user, tracker_environment


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


def test_trackers_write_into_the_folder_and_take_all_its_starts_for_one_run(tmp_path: Path) -> None:
    first, again = tracker_environment(tmp_path), tracker_environment(tmp_path)
    assert first["WANDB_RUN_ID"] == again["WANDB_RUN_ID"]
    assert first["WANDB_DIR"] == str(tmp_path) and first["TENSORBOARD_DIR"].startswith(str(tmp_path))


@pytest.mark.parametrize(("host", "mode"), [("github.com", "offline"), ("wandb.example", None)])
def test_wandb_is_offline_unless_the_user_is_logged_in_there(
    host: str, mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key for another host is no login."""
    import wandb

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text(f"machine {host} login user password {'x' * 40}\n")
    try:
        ask_wandb()
        assert wandb.setup().settings.mode == (mode or "online")
    finally:
        monkeypatch.delenv("WANDB_MODE", raising=False)
        wandb.teardown()


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


# -- the config --------------------------------------------------------------------------------------------------------


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an NVIDIA driver."""
    monkeypatch.delenv("SPIRAL_HARDWARE", raising=False)
    command = tmp_path / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))


def made_for(kind: str) -> None:
    """The mark of ``run_scripts/setup.sh``."""
    marks = Path(sys.prefix, ".spiral")
    marks.mkdir(parents=True)
    (marks / "kind").write_text(f"{kind}\n")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_an_environment_of_ours_says_what_it_is_for(driver: None, kind: str) -> None:
    made_for(kind)
    assert detect_hardware() == kind


def test_the_user_says_it_first(driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("cpu")
    monkeypatch.setenv("SPIRAL_HARDWARE", "gpu")
    assert detect_hardware() == "gpu"


def test_a_value_of_the_environment_stays_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hunter2")
    settings = {
        "a": {"user": "me ${oc.env:GH_PAT}", "same": "${a.user}", "rows": [1, {"x": "${oc.env:GH_PAT,none}"}]},
        "whole": "${a}",
        "plain": "${seed}",
        "seed": 3,
        "nothing": None,
    }
    setup = OmegaConf.create(settings)
    assert setup.a.same == "me hunter2"
    rows, user = [1, {"x": "${oc.env:GH_PAT,none}"}], "me ${oc.env:GH_PAT}"
    inner = {"user": user, "same": user, "rows": rows}
    assert as_written(setup) == {"a": inner, "whole": inner, "plain": 3, "seed": 3, "nothing": None}
    assert setup.a.same == "me hunter2"


@pytest.mark.parametrize("key", ["${oc.env:GH_PAT}", "${mine}", {"a": ["Bearer ${oc.env:GH_PAT}"]}])
def test_an_endpoint_is_given_the_name_of_a_variable_alone(key: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hunter2")
    for kind, refused in ((API, True), ("model", False)):
        entries = [{"kind": kind, "api_key_env": "GH_PAT", "extra_body": key}, "random"]
        setup = OmegaConf.create({"mine": "${oc.env:GH_PAT}", "opponents": entries})
        try:
            refuse_environment(setup, "opponents")
            assert not refused
        except ValueError as error:
            assert refused and "opponents" in str(error) and "hunter2" not in str(error)
