"""The lab's commands: how they are shown to people, and how they run."""

import os
import runpy
import shlex
import shutil
import sys
from pathlib import Path

from ..processes.interrupts import end_on_signals


def command(module: str, *arguments: object) -> str:
    """How to start a module of the recipe from any directory, to be copied: ``python`` where that is this Python."""
    python = shutil.which("python") if "VIRTUAL_ENV" in os.environ else None
    own = python is not None and Path(python).parent == Path(sys.executable).parent
    return shlex.join(["python" if own else sys.executable, "-m", f"recipe.spiral.{module}", *map(str, arguments)])


def run_part(name: str) -> None:
    """Run a part of the lab as a program. A signal while it imports ends it with one line."""
    end_on_signals()
    runpy.run_module(f"recipe.spiral.lab.{name}", run_name="__main__")
