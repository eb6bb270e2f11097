"""The experiments' pages, made from their result files: ``python -m experiments.pages [FOLDER]``.

Each ``<name>.json`` in the folder gets a page and plots, and a README.md lists all of them. Nothing else goes into the
pages, so they can be made again at any time and come out the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments import handicap_page, learning_page, learning_plot, modes_page, variance_page
from experiments.result import ROOT, BadResult, Result, weights_digest
from experiments.text import PlotsMissing, bullets
from recipe.spiral.processes.arguments import Arguments
from recipe.spiral.storage.disk import write_whole

FOLDER = Path("docs/experiments")
#: By experiment: the body of its page, and its plots by name.
BODIES: dict[str, Callable[[Result], str]] = {
    "handicap": handicap_page.body,
    "modes": modes_page.body,
    "variance": variance_page.body,
    **dict.fromkeys(learning_page.EXPERIMENTS, learning_page.body),
}
PLOTS: dict[str, dict[str, Callable[[Result], Any]]] = {
    "handicap": handicap_page.PLOTS,
    "modes": modes_page.PLOTS,
    "variance": variance_page.PLOTS,
    **learning_plot.PLOTS,
}
#: Experiments whose pages say themselves which models their runs began with.
NAMES_MODELS = (*learning_page.PRETRAINED, "handicap")
_LANDMARKS = ", ".join(f"{value:.3f} ({name})" for name, value in learning_page.LANDMARKS.items())
#: Settings of an experiment that say where things lie and do not change the result.
_WHERE = ("work", "output", "limit")


_SHARED = f"""\
Made from the result files (JSON) beside the pages by `python -m experiments.pages`; do not edit.

## Runs

- **`main_spiral`** trains and `main_eval` measures checkpoints. The **quick loop** (`experiments/quick.py`) has the
  same games, prompts, baselines, pool and loss in plain torch, for one small game. It computes the probabilities at all
  information sets, so its measures are exact.
- Runs begin with the same [tiny model](../tiny_model.md), unless arms name others. A "locally made" one does not come
  with the recipe.
- Presets change: the settings "at that time" are those that the runs had.
- Minutes are those of all runs, one after the other.

## Intervals

- **A ± B**: the mean over the seeds with its 95% interval by Student's t. With one seed there is none, and another seed
  would give other figures.
- **A [B, C]**: a share of measured games with its 95% interval (Wilson). It leaves out how another run differs.
- No interval covers the warm start, which changes a result more than a seed does ([tiny_model.md](../tiny_model.md)),
  unless a page names several warm starts: then each is one repetition, with the mean over its seeds.
- **difference (p)**: the arm minus the first arm, seed by seed, with its interval and the p-value of a paired t test
  after Holm's correction for the table. A large p-value does not show that arms are equal.

## Tables

- **NashConv** is what both players together gain by best responses, in chips, given that answers are legal. At an
  equilibrium it is 0. Other policies of one-round Kuhn poker:
  {_LANDMARKS}.
- **average policy**: NashConv of the average of the policies measured after the start.
- **at rest**: the policy in which the gain of every action balances the pull of the KL loss to a start that plays
  uniformly (`experiments/regularised_equilibrium.py`). Training need not get there.
- **against its past**: the last policy's mean reward against the policies measured before it, in both roles; **best of
  its past**: against the one that does best. Below 0, the last policy loses to an earlier one.
- **won, lost** (the rest is drawn), **illegal** (ended by an illegal answer): only of games that the arm trained on. At
  Kuhn poker won games do not measure strength: always betting and calling wins 75% (player 0) and 62.5% (player 1)
  against random play with a NashConv of 0.667, an equilibrium policy 44 to 53% and 47%. A **mean reward** of 1 is the
  largest stake, there two chips.
- **score**: wins plus half of the draws. Differences are of the score, or of the mean reward where it was measured.
- **Targets** are judged at the last point up to their number of games, seed by seed. **mean**: over the last games;
  **worst mean**: the worst such mean so far.
- **worst**: the highest value in any seed, game and role; the plots show when. **rise of NashConv**, **drop of the
  score**: from the best so far. **one role behind**: how far the difference between the roles' scores has moved from
  its start. In measured games, chance makes some percent.
"""


def page(result: Result) -> str:
    """A result's page."""
    plots = "".join(f"![{name}]({name}.png)\n\n" for name in PLOTS[result.name])
    seeds = f"seed{'s' * (len(result.seeds) > 1)} {', '.join(map(str, result.seeds))}"
    # older results name the module where it was when they were made
    command = result.command.replace("recipe.spiral.experiments.", "experiments.")
    return (
        f"# {result.title}\n\n{_model_note(result)}{BODIES[result.name](result)}\n\n{plots}```bash\n{command}\n```\n\n"
        f"[{result.name}.json]({result.name}.json): commit {result.commit}; {seeds}; {result.games:,} games; "
        f"{result.minutes:.1f} minutes.\n"
    )


def _model_note(result: Result) -> str:
    """A sentence for a result that was measured with another tiny model than the one that the recipe ships."""
    shipped = {weights_digest(file.parent) for file in (ROOT / "recipe/spiral/shipped").rglob("*.safetensors")}
    models = result.figures.get("models", [])
    if result.name in NAMES_MODELS or (models and shipped.issuperset(models)):
        return ""
    if ours := len(shipped.intersection(models)):
        return f"From the shipped model and {len(models) - ours} [locally made](README.md#runs).\n\n"
    return "From a [locally made model](README.md#runs).\n\n"


def index(results: Iterable[Result], whole: bool = True) -> str:
    """The list of experiments, and what their pages share; ``whole``: with the ones that were not run."""
    results = list(results)
    lines = [f"[{result.title}]({result.name}.md), {result.minutes:.0f} min" for result in results]
    if whole:
        lines += [f"{title}, not run" for title in _not_run({result.name for result in results})]
    return f"# Experiments\n\n{bullets(lines)}\n\n{_SHARED}"


def folder_of(settings: Mapping[str, Any], overrides: Sequence[str]) -> Path:
    """Where a result goes. One with overrides goes to the working folder unless ``output`` is set, so that a trial does
    not replace the project's result.

    Args:
        settings: the experiment's; ``work`` and ``output`` are read.
        overrides: those of the command line.
    """
    changed = any(override.partition("=")[0].strip("+") not in _WHERE for override in overrides)
    return Path(settings["output"] or (Path(settings["work"]) / "docs" if changed else FOLDER))


def publish(result: Result, settings: Mapping[str, Any], overrides: Sequence[str]) -> list[Path]:
    """Write a result and its pages into ``folder_of`` the settings; returns the files.

    Raises:
        BadResult: another file of the folder is not valid; this result is written, the pages are not.
    """
    folder = folder_of(settings, overrides)
    file = result.write(folder)
    try:
        return [file, *regenerate(folder)]
    except BadResult as error:
        raise BadResult(f"{error}; the result is in {file}, without a page") from error


def regenerate(folder: Path = FOLDER, plots: bool = True) -> list[Path]:
    """Write all pages, and the plots if matplotlib is installed; returns the files.

    The project's own folder also lists the experiments that were not run.

    Raises:
        BadResult: a file is not a valid result, or its experiment has no page.
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
        BadResult: it is not valid, or has no page.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pages again; returns the exit status."""
    parser = Arguments(prog="python -m experiments.pages", description=__doc__)
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
