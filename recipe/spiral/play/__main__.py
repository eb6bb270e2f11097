"""The command ``python -m recipe.spiral.play GAME [MODEL]``: play against a model, in the terminal or in a browser."""

from __future__ import annotations

from ..human.command_line import main
from ..running.command import run_command

if __name__ == "__main__":
    run_command(main)
