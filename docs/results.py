"""Writes the table of results into README.md and recipe/spiral/README.md, from the result files in docs/experiments.

python docs/results.py            writes the tables
python docs/results.py --check    writes nothing; exit status 1 where a table is not current
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "docs" / "experiments"
PAGES = (ROOT / "README.md", ROOT / "recipe" / "spiral" / "README.md")
BEGIN, END = "<!-- made by docs/results.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        file: the experiment's result file, without its ending.
        arm: the arm of the experiment.
        game, metric: for people.
        measures: the names in the result file: one, or one for each role.
        share: whether these are shares, to be shown in percent.
        last: where the result is: " mean" of the last games, or the last point itself, "".
    """

    file: str
    arm: str
    game: str
    metric: str
    measures: tuple[str, ...]
    share: bool = True
    last: str = ""


def by_role(measure: str) -> tuple[str, str]:
    return measure.format(0), measure.format(1)


TICTACTOE = "TicTacToe, player {}, "
ROWS = (
    Row(
        "equilibrium_verl",
        "exponential mean",
        "Kuhn poker",
        "NashConv of the mean",
        ("NashConv of the reference",),
        share=False,
        last=", mean",
    ),
    Row(
        "equilibrium",
        "exponential mean",
        "Kuhn poker, quick loop",
        "NashConv of the mean",
        ("NashConv of the reference",),
        share=False,
        last=", mean",
    ),
    Row(
        "kuhn", "self-play", "Kuhn poker, KL to the start", "NashConv, chips", ("NashConv",), share=False, last=", mean"
    ),
    Row("tictactoe", "self-play", "TicTacToe", "won against random", by_role(TICTACTOE + "random: win")),
    Row("tictactoe", "self-play", "TicTacToe", "lost to perfect", by_role(TICTACTOE + "perfect: loss")),
    Row(
        "tictactoe_long",
        "self-play",
        "TicTacToe, quick loop",
        "lost to perfect",
        by_role(TICTACTOE + "perfect: loss"),
    ),
    Row(
        "three_games", "all three", "TicTacToe, one of three", "won against random", by_role(TICTACTOE + "random: win")
    ),
    Row(
        "smollm2",
        "self-play",
        "Kuhn poker, SmolLM2-135M",
        "ended by an illegal answer",
        by_role("KuhnPoker, player {}, random: invalid"),
    ),
)


def table(linked: bool) -> str:
    """One line for each row: what was measured before and after, the games of training, seeds and command.

    Args:
        linked: whether games link to the experiments' pages, which a fork of verl does not have.
    """
    lines = [
        "| game | metric | before | after | games | seeds | command |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        result = json.loads((EXPERIMENTS / f"{row.file}.json").read_text(encoding="utf-8"))
        runs = [run for run in result["rows"] if run["arm"] == row.arm]
        curves = result["figures"]["curves"][row.arm]
        starts = [curves[_name(run)]["points"][0] for run in runs]
        before = _cell(row, starts, "")
        after = _cell(row, runs, row.last)
        command = f"`learn.sh {row.file}`"
        name = f"[{row.game}](docs/experiments/{row.file}.md)" if linked else row.game
        seeds, models = (len({run.get(each) for run in runs}) for each in ("seed", "warm_start"))
        repeated = f"{seeds}, {models} models" if models > 1 else str(seeds)
        lines.append(f"| {name} | {row.metric} | {before} | {after} | {runs[0]['games']:,} | {repeated} | {command} |")
    return "\n".join(lines)


def _name(run: dict[str, Any]) -> str:
    """What the curves call a run: its seed, with the tiny model's before it where there are several."""
    return str(run["seed"]) if "warm_start" not in run else f"{run['warm_start']}, {run['seed']}"


def _cell(row: Row, runs: list[dict[str, Any]], last: str) -> str:
    """A figure for each role, each the mean over the seeds."""
    means = [sum(run[measure + last] for run in runs) / len(runs) for measure in row.measures]
    return " / ".join(f"{mean:.0%}" if row.share else f"{mean:.2f}" for mean in means)


def with_table(page: Path) -> str:
    """A page with the table as it should be between the markers."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(linked=page.parent == ROOT)}\n\n{END}{rest.split(END, 1)[1]}"


def main() -> int:
    stale = [page for page in PAGES if page.read_text(encoding="utf-8") != with_table(page)]
    if sys.argv[1:] == ["--check"]:
        print("\n".join(f"{page}: not current: run python docs/results.py" for page in stale) or "current")
        return 1 if stale else 0
    for page in stale:
        page.write_text(with_table(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
