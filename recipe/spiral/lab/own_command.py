"""The command lines that are shown to people."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def command(module: str, *arguments: object) -> str:
    """How to start a module of the recipe from any directory, to be copied: ``python`` where that is this Python."""
    python = shutil.which("python") if "VIRTUAL_ENV" in os.environ else None
    own = python is not None and Path(python).parent == Path(sys.executable).parent
    return shlex.join(["python" if own else sys.executable, "-m", f"recipe.spiral.{module}", *map(str, arguments)])
