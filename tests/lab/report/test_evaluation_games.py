"""An evaluation's folder as a report: its games are replayed, also while it goes on and where it follows a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.matches.matchups import Plan, PlannedGame
from recipe.spiral.lab.evaluation.matches.store import FILE, EvaluationStore
from recipe.spiral.lab.report import evaluation_games
from recipe.spiral.lab.report.__main__ import main
from recipe.spiral.lab.report.run_report import RunReport
from tests.lab.evaluation.made import at_random, losing, manifest, plan
from tests.lab.report.test_run_report import lines, unpacked

MATCH_UPS = (("policy <b>a</b>", "random", "TicTacToe"), ("b", "random", "KuhnPoker"))


def planned(n: int = 3) -> Plan:
    return plan(n, *MATCH_UPS)


def add(folder: Path, games: Iterable[PlannedGame]) -> Path:
    with EvaluationStore(folder, manifest("policy <b>a</b>", "b", "random")) as store:
        for game in games:
            store.append(at_random(game))
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
    assert (facts["kind"], facts["games"]["eval"], facts["by_checkpoint"]) == ("evaluation", 12, False)
    assert counted(made) == {"b": 6, "policy <b>a</b>": 6}
    assert made.bundle.read("games")["policies"] == ["b", "policy <b>a</b>"]
    rows = lines(made.bundle, "eval", 1)
    assert [(row["game"], row["roles"], row["index"]) for row in rows] == [
        (game.id.game, game.id.role, game.id.place) for game in planned()
    ]
    for row, game in zip(rows, planned(), strict=True):
        shown = unpacked(made.bundle, f"games/eval_1_{row['part']}")[row["place"]]
        assert shown["players"] == list(game.players) and None not in shown["tables"]
    cards = shown["tables"][0]["now"]["cards"]
    assert {*cards} < {"J", "Q", "K"} and len(cards) == 2


def test_only_steps_with_new_games_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_games, "TOGETHER", 5)
    games = list(planned())
    made = report(add(tmp_path, games[:7]))
    assert sorted(made.games.steps["eval"]) == [1, 2] and not made.renew()
    add(tmp_path, games[7:])
    again = RunReport(tmp_path, tmp_path / "report")  # another process
    assert sum(again.games.renew()) == 2, "the second step has grown, and the third is new"
    assert report(tmp_path).bundle.read("run")["games"]["eval"] == 12
    assert [len(lines(made.bundle, "eval", step)) for step in (1, 2, 3)] == [5, 5, 2]


def test_an_evaluation_that_follows_a_run_has_the_steps_of_its_checkpoints(tmp_path: Path) -> None:
    for step in (20, 40):
        add(tmp_path / f"step_{step:06d}", planned(1))
    (tmp_path / "step_x").mkdir()
    made = report(tmp_path)
    assert made.bundle.read("run")["by_checkpoint"] and sorted(made.games.steps["eval"]) == [20, 40]
    assert counted(made) == {"b": 4, "policy <b>a</b>": 4}


def test_a_game_that_a_policy_ended_by_an_illegal_answer_is_counted(tmp_path: Path) -> None:
    with EvaluationStore(tmp_path, manifest("policy <b>a</b>", "b", "random")) as store:
        for game in planned(1):
            store.append(losing(game))
    results = report(tmp_path).bundle.read("run")["results"]
    assert [row[4:] for row in results] == [[0, 0, 1, 1]] * 4


def test_a_damaged_row_costs_what_comes_after_it(tmp_path: Path) -> None:
    add(tmp_path, planned())
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("UPDATE games SET value = value || ' ' WHERE rowid = 5")
    facts = report(tmp_path).bundle.read("run")
    assert (facts["games"]["eval"], facts["broken"]) == (4, 1)


def test_a_file_that_is_no_evaluation_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE).write_text("no database")
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "SQLite cannot use this file" in error and error.count("\n") == 1


def test_the_command_shows_games_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = add(tmp_path / "evaluation", planned(1))
    (folder / "results.csv").write_text("policy,opponent\nb,random\n")  # no sweep's, which has the same name
    (folder / "results.json").write_text('{"results": [], "ratings": [], "notes": ["a note"]}')
    assert main([str(folder)]) == 0
    shown = RunReport(folder, folder / "report").bundle
    assert shown.read("run")["games"]["eval"] == 4
    assert [one["notes"] for one in shown.read("evaluation")["evaluations"]] == [["a note"]]
