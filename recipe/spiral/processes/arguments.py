"""What commands with options have in common: one that is wrong costs a line before any work, and so does a signal."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

from ..games import resolve
from .interrupts import interrupt_on_signals
from .terminal import fail, run_command

Number = TypeVar("Number", int, float)
#: What ``--game`` is for, in commands that read a folder.
NAMED = "a game's class in the folder that you trust: its code runs, so that its games can be played again"


class Arguments(argparse.ArgumentParser):
    """argparse's, with an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(fail(f"{message}; --help shows all options", status=2))

    def refuse_idle(self, options: argparse.Namespace, **needs: str) -> None:
        """Refuse an option that was given without the one that it is for."""
        for name, needed in needs.items():
            if getattr(options, name) != self.get_default(name) and not getattr(options, needed):
                self.error(f"--{name}: is only for --{needed}")


def within(kind: type[Number], least: float, most: float = math.inf) -> Callable[[str], Number]:
    """The type of an option: a number from ``least`` to ``most``, and never NaN or infinite."""

    def read(text: str) -> Number:
        with suppress(ValueError):
            value = kind(text)
            if math.isfinite(value) and least <= value <= most:
                return value
        what = "a whole number" if kind is int else "a number"
        extent = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise argparse.ArgumentTypeError(f"{text}: must be {what} {extent}")

    return read


def own_game(text: str) -> str:
    """The type of ``--game``: a class that is there, and is a game."""
    try:
        return resolve(text)
    except (ValueError, ImportError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run_program(main: Callable[[], int | None], then: str = "") -> NoReturn:
    """``run_command``, in which the signals raise KeyboardInterrupt."""
    interrupt_on_signals()
    run_command(main, then)
