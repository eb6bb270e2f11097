"""The experiments' pages, made from their result files: ``python -m experiments.pages [FOLDER]``.

For each ``<name>.json`` in the folder a page and plots, and a README.md that lists them all. Nothing else goes in, so
the pages can be made again at any time, and come out the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.plots import PlotsMissing
from experiments.result import BadResult, Result
from experiments.text import table
from recipe.spiral.storage.disk import write_whole

from . import learning_page, learning_plot, variance_page

FOLDER = Path("docs/experiments")
#: What a page says between its head and its end, by experiment; and its plots: names and functions that draw them.
BODIES: dict[str, Callable[[Result], str]] = {
    "variance": variance_page.body,
    **dict.fromkeys(learning_page.EXPERIMENTS, learning_page.body),
}
PLOTS: dict[str, dict[str, Callable[[Result], Any]]] = {"variance": variance_page.PLOTS, **learning_plot.PLOTS}


def page(result: Result) -> str:
    """A result's page."""
    plots = "".join(f"![{name}]({name}.png)\n\n" for name in PLOTS[result.name])
    return (
        f"# {result.title}\n\n{_made(result)}\n\n{BODIES[result.name](result)}\n\n{plots}"
        f"## How it came about\n\n```bash\n{result.command}\n```\n\n"
        f"Commit {result.commit}; {_seeds(result)}; {result.games:,} games; {result.minutes:.1f} minutes. "
        f"All figures and settings: [{result.name}.json]({result.name}.json).\n"
    )


def index(results: Iterable[Result], whole: bool = True) -> str:
    """The list of experiments; ``whole``: with those that were not run."""
    results = list(results)
    rows = [
        [f"[{result.title}]({result.name}.md)", f"{result.games:,}", f"{len(result.seeds)}", f"{result.minutes:.1f}"]
        for result in results
    ]
    if whole:
        rows += [[title, "not run", "", ""] for title in _not_run({result.name for result in results})]
    return (
        "# Experiments\n\nWhat was measured, with the command, the commit and the intervals. These pages are made from "
        "the result files (JSON) beside them by `python -m experiments.pages`; nothing on them is typed "
        f"by hand.\n\n{table(['experiment', 'games', 'seeds', 'minutes'], rows)}\n\nMinutes are those of training, of "
        "all runs one after the other, and for the quick loop, which does as many at a time as there are cores, with "
        "what is measured on their way.\n"
    )


#: Settings of an experiment that say where, and do not change what comes out.
_WHERE = ("work", "output", "limit")


def publish(result: Result, settings: Mapping[str, Any], overrides: Sequence[str]) -> list[Path]:
    """Write a result and its pages; returns the files.

    Where ``output`` is not set, a result with overrides does not take the place of the project's, but goes to the
    working folder.

    Args:
        settings: the experiment's, of which ``work`` and ``output`` are read.
        overrides: those of the command line.

    Raises:
        BadResult: another file of the folder is none; this one is written then, the pages are not.
    """
    changed = any(override.partition("=")[0].strip("+") not in _WHERE for override in overrides)
    folder = Path(settings["output"] or (Path(settings["work"]) / "docs" if changed else FOLDER))
    file = result.write(folder)
    try:
        return [file, *regenerate(folder)]
    except BadResult as error:
        raise BadResult(f"{error}; the result is in {file}, without a page") from error


def regenerate(folder: Path = FOLDER, plots: bool = True) -> list[Path]:
    """Write all pages, and the plots if there is something to draw with; returns the files.

    The project's own folder lists the experiments as well that were not run.

    Raises:
        BadResult: a file is no result, or of an experiment that has no page.
    """
    results = [read(file) for file in sorted(folder.glob("*.json"))]
    files = {folder / f"{result.name}.md": page(result) for result in results}
    files[folder / "README.md"] = index(results, whole=folder.resolve() == FOLDER.resolve())
    for file, text in files.items():
        write_whole(file, text)
    written = list(files)
    if plots:
        try:
            for result in results:
                for name, draw in PLOTS[result.name].items():
                    draw(result).savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
                    written.append(folder / f"{name}.png")
        except PlotsMissing as error:
            print(f"no plots: {error}", file=sys.stderr)
    return written


def read(file: Path) -> Result:
    """A result that has a page.

    Raises:
        BadResult: it has none.
    """
    result = Result.read(file)
    if result.name not in BODIES:
        raise BadResult(f"{file}: name: {result.name!r} has no page; known: {', '.join(BODIES)}")
    if result.name != file.stem:
        raise BadResult(f"{file}: name: {result.name!r} is not the file's")
    return result


def _not_run(names: Collection[str]) -> list[str]:
    """The titles of the experiments that have a config and no result."""
    configs = Path(__file__).with_name("config")
    return [
        f"{OmegaConf.load(configs / f'{name}.yaml').title} (`run_scripts/experiments/learn.sh {name}`)"
        for name in learning_page.EXPERIMENTS
        if name not in names
    ]


def _made(result: Result) -> str:
    return f"Made from `{result.name}.json` by `python -m experiments.pages`; do not edit."


def _seeds(result: Result) -> str:
    return f"seed{'s' * (len(result.seeds) > 1)} {', '.join(map(str, result.seeds))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pages again; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.pages", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER}")
    parser.add_argument("--no-plots", action="store_true", help="leave the plots as they are")
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        print(f"{given.folder}: no such folder; run this at the project's root, or name it", file=sys.stderr)
        return 2
    try:
        for file in regenerate(given.folder, plots=not given.no_plots):
            print(file)
    except BadResult as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
