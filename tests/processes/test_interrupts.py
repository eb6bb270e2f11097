"""Each signal ends a command like Ctrl-C, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from recipe.spiral.processes import interrupts
from recipe.spiral.processes.interrupts import END_SIGNALS, Interrupt, interrupt_on_signals, interrupted_by


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
