"""An evaluation's results for their page: what ``main_eval`` wrote into its folder, or several of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..evaluation.benchmark_catalog import PAPER, PAPER_AVERAGES
from ..evaluation.results import RESULTS

#: The parts of ``results.json`` that the page shows.
_PARTS = ("results", "ratings", "exploitability", "optimality", "benchmarks", "notes")
#: What is raised where a file is not as main_eval writes it.
_NOT_OURS = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


def folders(run_dir: Path) -> list[Path]:
    """The evaluations of this run that lie in its folder or where evaluations usually lie."""
    places = sorted(run_dir.glob("evaluation*"))
    usual = run_dir.absolute().parent.parent / "evaluation"
    places += [place for place in sorted(usual.glob("*")) if place.is_dir() and _is_of(place, run_dir)]
    return with_results(places)


def with_results(places: Iterable[Path]) -> list[Path]:
    """Evaluations that have results, each once, among these."""
    return [place for place in {one.resolve(): one for one in places}.values() if (place / f"{RESULTS}.json").is_file()]


def _is_of(place: Path, run_dir: Path) -> bool:
    """Whether a policy's path, which its identity in the manifest has, is the run's folder or in it."""
    run = run_dir.resolve()
    try:
        policies = json.loads((place / f"{RESULTS}.json").read_bytes())["manifest"]["policies"]
        said = [Path(text) for policy in policies.values() for text in policy.values() if isinstance(text, str)]
    except _NOT_OURS:
        return False
    return any(path == run or run in path.parents for path in said)


def evaluations(places: Iterable[Path]) -> dict[str, Any]:
    """All that the page shows. A folder whose results cannot be read is named in ``unreadable``."""
    readable, unreadable = [], []
    for place in places:
        try:
            results = json.loads((place / f"{RESULTS}.json").read_bytes())
            parts = {part: results[part] for part in _PARTS if part in results}
            readable.append({"name": place.name, **parts})
        except _NOT_OURS as error:
            unreadable.append(f"{place.name}: {type(error).__name__}")
    return {"evaluations": readable, "unreadable": unreadable, "paper": PAPER, "paper_averages": PAPER_AVERAGES}
