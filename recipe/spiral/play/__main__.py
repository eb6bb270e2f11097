"""The command ``python -m recipe.spiral.play GAME [MODEL]``: play against a model, in the terminal or in a browser."""

from __future__ import annotations

from ..running.terminal import run_command
from .command_line import main

if __name__ == "__main__":
    run_command(main)
