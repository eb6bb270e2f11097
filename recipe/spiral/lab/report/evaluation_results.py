"""An evaluation's results for their page: what ``main_eval`` wrote into its folder, or several of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from ..evaluation.benchmarks.catalog import PAPER, PAPER_AVERAGES
from ..evaluation.outputs.results import RESULTS

#: The parts of ``results.json`` that the page shows.
_PARTS = ("results", "own_past", "ratings", "exploitability", "optimality", "benchmarks", "notes")
#: Information sets in ``actions.csv`` beyond these are not shown.
_MOST_ROWS = 20_000
#: What is raised where a file is not as main_eval writes it.
_NOT_OURS = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, csv.Error)


def folders(run_dir: Path) -> list[Path]:
    """The evaluations of this run that lie in its folder or where evaluations usually lie."""
    places = sorted(run_dir.glob("evaluation*"))
    usual = run_dir.absolute().parent.parent / "evaluation"
    places += [place for place in sorted(usual.glob("*")) if place.is_dir() and _is_of(place, run_dir)]
    return with_results(places)


def with_results(places: Iterable[Path]) -> list[Path]:
    """Evaluations that have results, each once, among these and what they have for each checkpoint."""
    candidates = (folder for place in places for folder in (place, *sorted(place.glob("step_*"))))
    files = {folder: folder / f"{RESULTS}.json" for folder in {one.resolve(): one for one in candidates}.values()}
    return [folder for folder, file in files.items() if file.is_file()]


def _is_of(place: Path, run_dir: Path) -> bool:
    """Whether a policy's path, which its identity in the manifest has, is the run's folder or in it."""
    run = run_dir.resolve()
    for file in (place / f"{RESULTS}.json", *sorted(place.glob(f"step_*/{RESULTS}.json"))[:1]):
        try:
            policies = json.loads(file.read_bytes())["manifest"]["policies"]
            said = [Path(text) for policy in policies.values() for text in policy.values() if isinstance(text, str)]
        except _NOT_OURS:
            continue
        if any(path == run or run in path.parents for path in said):
            return True
    return False


def evaluations(run_dir: Path, places: Iterable[Path]) -> dict[str, Any]:
    """All that the page shows. A folder whose results cannot be read is named in ``unreadable``."""
    readable, unreadable = [], []
    for place in places:
        try:
            results = json.loads((place / f"{RESULTS}.json").read_bytes())
            parts = {part: results[part] for part in _PARTS if part in results}
            readable.append({"name": _name(place, run_dir), **parts, "policies": _policies(place)})
        except _NOT_OURS as error:
            unreadable.append(f"{_name(place, run_dir)}: {type(error).__name__}")
    return {"evaluations": readable, "unreadable": unreadable, "paper": PAPER, "paper_averages": PAPER_AVERAGES}


def _name(place: Path, run_dir: Path) -> str:
    return f"{place.parent.name}/{place.name}" if place.name.startswith("step_") else place.name


def _policies(place: Path) -> list[dict[str, str]]:
    """What each policy does at each information set of small games: rows of ``actions.csv``."""
    file = place / "actions.csv"
    if not file.is_file():
        return []
    return list(islice(csv.DictReader(io.StringIO(file.read_bytes().decode(), newline="")), _MOST_ROWS))
