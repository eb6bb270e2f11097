"""The command ``python -m benchmarks.scaling``: each part renews its part of docs/scaling.json, and the page."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.options import new_folder, run_folder
from recipe.spiral.processes.arguments import Arguments, new_file, within
from recipe.spiral.processes.terminal import fail

from .page import page

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS, PAGE = DOCS / "scaling.json", DOCS / "scaling.md"


def parser() -> Arguments:
    made = Arguments(prog="python -m benchmarks.scaling", description=__doc__)
    made.add_argument("--json", type=new_file, default=RESULTS, help="the results; the page is beside them")
    parts = made.add_subparsers(dest="part", required=True, metavar="PART")
    parts.add_parser("measure", help="what the processes beside the model cost here (a minute or two, starts a Ray)")
    making = parts.add_parser("run", help="make a run to fit, or to check (some minutes)")
    making.add_argument("folder", type=new_folder)
    making.add_argument("--override", nargs="*", default=[], help="the run's settings, Hydra's")
    making.add_argument("--games", type=within(int, 1), required=True, help="games of a step")
    making.add_argument("--steps", type=within(int, 1), default=14)
    making.add_argument("--limit", type=within(float, 1), default=600.0, help="seconds, after which it ends")
    fitting = parts.add_parser("fit", help="fit this machine's costs to its runs, and predict other runs of it")
    fitting.add_argument("runs", type=run_folder, nargs="+", help="folders of sync runs with different batches, to fit")
    fitting.add_argument("--check", type=run_folder, nargs="+", required=True, help="folders of runs to predict")
    parts.add_parser("predict", help="simulate 8, 64 and 512 H100s (some minutes)")
    writing = parts.add_parser("page", help="write the page from the results")
    writing.add_argument("--check", action="store_true", help="write nothing; exit status 1 if it is not current")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _renew(options, options.json)
    except ValueError as error:
        return fail(error, 2)


def _renew(options: Any, file: Path) -> int:
    try:
        results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{file}: is no JSON ({error})") from error
    written = file.with_suffix(".md")
    if options.part == "page" and options.check:
        if written.is_file() and written.read_text(encoding="utf-8") == page(results):
            return 0
        print(f"{written} is not current: run python -m benchmarks.scaling page", file=sys.stderr)
        return 1
    if options.part == "run":
        from .runs import make

        last = make(options.folder, options.games, options.steps, options.limit, options.override)
        print(f"{options.folder}: trained to step {last}")
        return 0
    if options.part == "measure":
        from .measure import measure

        results["host"] = measure() | {"cores": len(os.sched_getaffinity(0))}
    elif options.part == "fit":
        if "host" not in results:
            print(f"{file} has no host: run the part measure first", file=sys.stderr)
            return 2
        results["fit"] = fitted(options.runs, options.check, results["host"])
    elif options.part == "predict":
        from .predict import predict

        missing = [part for part in ("host", "fit") if part not in results]
        if missing:
            print(f"{file} has no {' and no '.join(missing)}: run that part first", file=sys.stderr)
            return 2
        for predicted in predict(host_of(results), results.get("predicted")):
            results["predicted"] = predicted
            file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            rows = predicted["scaled"]
            print(f"{len(rows)} runs, {sum(len(row['gains']) for row in rows)} of them without a part", flush=True)
    if options.part in ("measure", "fit"):
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if {"host", "fit", "predicted"} <= results.keys():
        written.write_text(page(results), encoding="utf-8")
    return 0


def fitted(runs: Sequence[Path], checked: Sequence[Path], host: dict[str, Any]) -> dict[str, Any]:
    """This machine's costs, and what they predict of other runs; the errors are printed.

    Raises:
        ValueError: a run that is to be fitted is not of the sync mode.
    """
    from dataclasses import asdict

    from omegaconf import OmegaConf

    from recipe.spiral.training.game_buffer import LEAST_PAUSE

    from .fit import compare, driver, fit, setup_of, steps_of
    from .page import errors
    from .run import SYNC

    setups = {run: setup_of(OmegaConf.load(run / "config.yaml")) for run in (*runs, *checked)}
    for run in runs:
        if setups[run].mode != SYNC:
            raise ValueError(f"{run}: is in mode {setups[run].mode}; only runs in sync mode can be fitted")
    steps = [step for run in runs for step in steps_of(run)]
    costs = fit(steps, LEAST_PAUSE)
    drawn = [game for step in steps for game in step.games]
    compared = []
    for run in checked:
        compared.append(compare(run, setups[run], costs, drawn))
    print(errors(compared))
    return {
        "batches": sorted({len(step.games) for step in steps}),
        "steps": len(steps),
        "costs": asdict(costs),
        "driver": driver([step for run, setup in setups.items() if setup.mode == SYNC for step in steps_of(run)]),
        "compared": compared,
    }


def host_of(results: dict[str, Any]) -> Any:
    """The measured costs of the processes beside the model, with the driver's fitted ones."""
    from .figures import Host

    names = ("worker_turn", "queue_row", "queue_byte", "token_bytes", "driver_key")
    return Host(**{name: results["host"][name] for name in names} | results["fit"]["driver"])


if __name__ == "__main__":
    sys.exit(main())
