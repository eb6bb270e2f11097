"""The lab's commands: how they are shown to people, how they run, and what their options have in common: one that is
wrong costs a line before any work, and so does a signal."""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeVar

import psutil

from ..games import resolve
from ..processes.interrupts import end_on_signals, interrupt_on_signals
from ..processes.terminal import fail, run_command
from ..storage.disk import only_one

Number = TypeVar("Number", int, float)
#: What ``--game`` is for, in commands that read a folder.
NAMED = "a game's class in the folder that you trust: its code runs, so that its games can be played again"


def command(module: str, *arguments: object) -> str:
    """How to start a module of the recipe from any directory, to be copied: ``python`` where that is this Python."""
    python = shutil.which("python") if "VIRTUAL_ENV" in os.environ else None
    own = python is not None and Path(python).parent == Path(sys.executable).parent
    return shlex.join(["python" if own else sys.executable, "-m", f"recipe.spiral.{module}", *map(str, arguments)])


def run_part(name: str) -> None:
    """Run a part of the lab as a program. A signal while it imports ends it with one line."""
    end_on_signals()
    runpy.run_module(f"recipe.spiral.lab.{name}", run_name="__main__")


def run_program(main: Callable[[], int | None], then: str = "") -> NoReturn:
    """``run_command``, in which the signals raise KeyboardInterrupt."""
    interrupt_on_signals()
    run_command(main, then)


@contextmanager
def clean_run(folder: Path, setting: str) -> Iterator[None]:
    """Make a folder, which ``setting`` names in messages, and let nobody else in. When the block ends, so does every
    child process; signals end the block like Ctrl-C. Raises InUse: another process has the folder."""
    with only_one(folder, setting):
        interrupt_on_signals()
        try:
            yield
        finally:
            children = psutil.Process().children(recursive=True)
            for child in children:
                with suppress(psutil.Error):
                    child.terminate()
            for child in psutil.wait_procs(children, timeout=3.0)[1]:
                with suppress(psutil.Error):
                    child.kill()
            psutil.wait_procs(children, timeout=3.0)


class Arguments(argparse.ArgumentParser):
    """argparse's, with an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(fail(f"{message}; --help shows all options", status=2))

    def refuse_idle(self, options: argparse.Namespace, **needs: str) -> None:
        """Refuse an option that was given without the one that it is for."""
        for name, needed in needs.items():
            if getattr(options, name) != self.get_default(name) and not getattr(options, needed):
                self.error(f"--{name}: is only for --{needed}")


def within(kind: type[Number], least: float, most: float) -> Callable[[str], Number]:
    """The type of an option: a number from ``least`` to ``most``."""

    def read(text: str) -> Number:
        with suppress(ValueError):
            if least <= (value := kind(text)) <= most:
                return value
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text}: must be {what} from {least:g} to {most:g}")

    return read


def own_game(text: str) -> str:
    """The type of ``--game``: a class that is there, and is a game."""
    try:
        return resolve(text)
    except (ValueError, ImportError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
