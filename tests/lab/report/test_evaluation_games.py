"""An evaluation's folder as a report: its games are replayed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.evaluation_folder import EvaluationFolder
from recipe.spiral.lab.evaluation.matchups import GameId, Plan
from recipe.spiral.lab.report.__main__ import main
from recipe.spiral.lab.report.run_report import RunReport
from tests.lab.evaluation.made import at_random, manifest, plan
from tests.lab.report.test_run_report import lines, unpacked

MATCH_UPS = (("policy <b>a</b>", "random", "TicTacToe"), ("b", "random", "KuhnPoker"))


def planned(n: int = 3) -> Plan:
    return plan(n, *MATCH_UPS)


def add(folder: Path, games: Iterable[GameId]) -> Path:
    with EvaluationFolder(folder, manifest("policy <b>a</b>", "b", "random")) as made:
        for game in games:
            made.add(at_random(game))
    return folder


def report(folder: Path) -> RunReport:
    made = RunReport(folder, folder / "report")
    made.renew()
    return made


def counted(made: RunReport) -> dict[str, int]:
    """Games by policy."""
    found: dict[str, int] = {}
    for policy, _, _, _, *counts in made.bundle.read("run")["results"]:
        found[policy] = found.get(policy, 0) + sum(counts[:3])
    return found


def test_every_game_is_there_with_its_policy_and_its_table(tmp_path: Path) -> None:
    made = report(add(tmp_path, planned()))
    facts: dict[str, Any] = made.bundle.read("run")
    assert (facts["kind"], facts["games"]["eval"]) == ("evaluation", 12)
    assert counted(made) == {"b": 6, "policy <b>a</b>": 6}
    assert made.bundle.read("games")["policies"] == ["b", "policy <b>a</b>"]
    rows = lines(made.bundle, "eval", 1)
    assert [(row["game"], row["roles"], row["index"]) for row in rows] == [
        (game.game, game.role, game.place) for game in planned()
    ]
    for row, game in zip(rows, planned(), strict=True):
        shown = unpacked(made.bundle, f"games/eval_1_{row['part']}")[row["place"]]
        assert shown["players"] == list(game.players) and None not in shown["tables"]
    cards = shown["tables"][0]["now"]["cards"]
    assert {*cards} < {"J", "Q", "K"} and len(cards) == 2


def test_the_command_shows_games_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = add(tmp_path / "evaluation", planned(1))
    (folder / "results.json").write_text('{"results": [], "ratings": [], "notes": ["a note"]}')
    assert main([str(folder)]) == 0
    shown = RunReport(folder, folder / "report").bundle
    assert shown.read("run")["games"]["eval"] == 4
    assert [one["notes"] for one in shown.read("evaluation")["evaluations"]] == [["a note"]]
