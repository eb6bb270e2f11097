"""What people are shown of an evaluation, and what is written."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recipe.spiral.lab.evaluation.exploitability.exploitability_metrics import exploited, optimal
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.policy_table import PolicyTable
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform
from recipe.spiral.lab.evaluation.matches.matchups import GameId
from recipe.spiral.lab.evaluation.outputs.results import write_results
from recipe.spiral.lab.evaluation.outputs.summary import WIDTH, summary
from recipe.spiral.lab.evaluation.ratings.elo import rate_all
from recipe.spiral.lab.evaluation.ratings.statistics import Tabulation
from recipe.spiral.match import Rules
from tests.lab.evaluation.exploitability.tables import kuhn_equilibrium
from tests.lab.evaluation.made import game_of, losing, manifest, plan

LONG = "a/folder/with/a/very/long/name/step_000040"


def figures(n: int = 4) -> dict[str, Any]:
    """A wins as player 0 and loses by an illegal answer as player 1; everybody else draws."""
    tabulation = Tabulation()
    for game in plan(n, ("a", "random", "TicTacToe"), (LONG, "random", "TicTacToe"), (LONG, "a", "KuhnPoker")):
        record = game_of(game, "draw") if game.policy == LONG else losing(game) if game.role else game_of(game)
        tabulation.add(GameId.of(record), record)
    return {
        "results": list(map(asdict, tabulation.results())),
        "ratings": list(map(asdict, rate_all(tabulation.outcomes(), "random"))),
        "exploitability": [],
        "optimality": [],
        "benchmarks": {},
        "notes": ["not played: a note"],
    }


def test_the_verdict_is_in_a_players_words() -> None:
    told = summary(["a", LONG], figures()).replace("\n  ", " ")
    assert "a in TicTacToe: beats random in 100% as player 0 and 0% as player 1; ends 50% of its games by an" in told
    assert f"{LONG} in KuhnPoker: draws with a in 100% as player 0 and 100% as player 1" in told
    assert "Elo from all games (random is 0): " in told and told.endswith("not played: a note")


def test_nothing_is_wider_than_a_terminal() -> None:
    told = summary(["a", LONG], figures(1000))
    assert max(map(len, told.splitlines())) <= WIDTH
    rows = [line.split() for line in told.splitlines() if line.startswith("  a ")]
    assert rows[0] == ["a", "random", "0", "100", "[100,", "100]", "0", "0", "0", "1000"]
    assert f"..{LONG[-22:]}" in told, "the end of a name has the step"


def test_exact_measures_are_told_of_each_policy() -> None:
    found = figures()
    kuhn, nim = game_tree("KuhnPoker"), game_tree("Nim")
    tables = {"a": PolicyTable(kuhn, kuhn_equilibrium())}
    found["exploitability"] = exploited("KuhnPoker", tables, {}, "scores", Rules(), 0)
    found["optimality"] = optimal("Nim", {"a": PolicyTable(nim, uniform(nim))}, "scores")
    told = summary(["a"], found).replace("\n  ", " ")
    assert "a in KuhnPoker: NashConv 0.000 (0 is an equilibrium, random play has 0.917)" in told
    row, same = found["optimality"]
    assert row["lost_to_perfect"] == same["lost_to_perfect"] and "of the games to perfect play as player 0" in told


def test_without_games_there_are_results_all_the_same(tmp_path: Path) -> None:
    nothing = {**figures(), "results": [], "ratings": [], "notes": []}
    told = write_results(tmp_path, manifest("a"), ["a"], nothing)
    data = json.loads((tmp_path / "results.json").read_text())
    assert (data["version"], data["manifest"]["policies"], data["results"]) == (2, {"a": {"kind": "random"}}, [])
    assert f"recipe.spiral.report {tmp_path}" in told
