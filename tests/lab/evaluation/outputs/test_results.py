"""The results: JSON, CSV and tables say the same, in the same order, whatever was played."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from recipe.spiral.lab.evaluation.matches.matchups import Plan, round_robin
from recipe.spiral.lab.evaluation.matches.store import EvaluationStore
from recipe.spiral.lab.evaluation.outputs.results import to_json, write_report
from recipe.spiral.lab.evaluation.outputs.sheets import summary_sheets, to_csv, write_sheets
from recipe.spiral.lab.evaluation.outputs.tables import aligned, elo, percent, report
from recipe.spiral.lab.evaluation.ratings.elo import Estimate
from recipe.spiral.lab.evaluation.ratings.games_summary import ALL, summarise
from recipe.spiral.lab.evaluation.ratings.statistics import Rate
from recipe.spiral.players.records import GameRecord
from tests.lab.evaluation.made import at_random, game_of, losing, manifest, plan

NAMES = ["step_000016", "step_000032", "step_000048"]
STEPS = {name: 16 * (place + 1) for place, name in enumerate(NAMES)}
MANIFEST_OF = manifest(*NAMES, "random", sampling={"temperature": 1.0})


def played(n: int = 4) -> list[GameRecord]:
    """A round robin of three snapshots and random in two games: later ones win, but the last loses to the first."""
    records = []
    for game in Plan(round_robin(NAMES, ["TicTacToe", "KuhnPoker"], ["random"]), n):
        lost = game.id.policy == NAMES[2] and game.id.opponent == NAMES[0]
        records.append(losing(game) if lost else game_of(game, "draw" if game.key.index == n - 1 else "win"))
    return records


@pytest.mark.parametrize(("games", "said"), [(("KuhnPoker",), True), (("KuhnPoker", "Nim"), True), (("Nim",), False)])
def test_where_elo_says_nothing_the_text_and_the_json_say_so(games: tuple[str, ...], said: bool) -> None:
    pairs = [("a", "random"), ("b", "random"), ("a", "b")]
    summary = summarise(map(game_of, plan(2, *((*pair, game) for pair in pairs for game in games))))
    assert ("Elo says nothing about strength in KuhnPoker" in report(summary)) == said
    notes = {one["scope"]: one["note"] for one in json.loads(to_json(summary, MANIFEST_OF))["ratings"]}
    assert {scope for scope, note in notes.items() if note} == ({ALL, "KuhnPoker"} & notes.keys() if said else set())


def test_all_of_it_is_written_and_says_the_same(tmp_path: Path) -> None:
    records = played()
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        for record in records:
            store.append(record)
        text = write_report(tmp_path, summarise(store.records(), "random", steps=STEPS), store.manifest)
    assert (tmp_path / "results.txt").read_text() == text + "\n"
    data = json.loads((tmp_path / "results.json").read_text())
    assert (data["version"], data["lag"], data["manifest"]["settings"]) == (1, 16, {"sampling": {"temperature": 1.0}})
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(data["results"]) == 6 * 2 * 3
    for row, result in zip(rows, data["results"], strict=True):
        assert (row["policy"], row["opponent"], row["game"]) == (result["policy"], result["opponent"], result["game"])
        assert row["role"] == ("both" if result["role"] is None else str(result["role"]))
        assert int(row["win_count"]) == result["win"]["count"]
        assert float(row["win"]) == pytest.approx(result["win"]["value"], rel=1e-5)
        assert float(row["invalid_high"]) == pytest.approx(result["invalid"]["high"], rel=1e-5)
        assert result["win"]["low"] <= result["win"]["value"] <= result["win"]["high"]
        assert result["win"]["of"] == result["games"] == (8 if result["role"] is None else 4)
    assert [scope["scope"] for scope in data["ratings"]] == [ALL, "KuhnPoker", "TicTacToe"]
    assert [player["name"] for player in data["ratings"][0]["players"]][-1] == "random"
    assert data["ratings"][0]["anchor"] == "random"
    assert {pair["games"] for pair in data["ratings"][0]["head_to_head"]} == {16}
    assert {result["opponent"] for result in data["own_past"]} == set(NAMES[:2])
    with (tmp_path / "ratings.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 * 4
    with (tmp_path / "head_to_head.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 * 12


def test_the_table_is_aligned_and_readable() -> None:
    lines = report(summarise(played(64), "random")).splitlines()
    assert lines[0] == "Results: percent of the games [95% interval], means ± standard error"
    assert " ".join(lines[1].split()) == (
        "policy opponent game role win draw loss games void invalid opponent's reward turns tokens/turn truncated/turn"
    )
    found = [line for line in lines if line.startswith("step_000048  step_000016  KuhnPoker  0 ")]
    assert "0.0 [0.0, 5.7]  0.0 [0.0, 5.7]  100.0 [94.3, 100.0]   n=64     0  100.0 [94.3, 100.0]" in found[0]
    cycle = "step_000016 beats step_000048, step_000048 beats step_000032, step_000032 beats step_000016"
    assert f"  {cycle}" in lines
    assert "cycles: 1 of 4 decided triples (4 triples met)" in lines
    assert any(line.startswith("of what pairs' own log-odds explain, ratings do not explain") for line in lines)
    assert any("0.8 [" in line and "n=256" in line for line in lines), "the head-to-head has its counts"


def test_nothing_depends_on_the_order_of_games() -> None:
    records = played()
    shuffled = random.Random(1).sample(records, len(records))
    assert report(summarise(records)) == report(summarise(shuffled))
    one, other = summarise(records), summarise(shuffled)
    assert to_json(one, MANIFEST_OF) == to_json(other, MANIFEST_OF)


def test_of_two_players_the_results_are_enough() -> None:
    summary = summarise(map(game_of, plan(2, ("a", "random", "Nim"))))
    assert summary.rated == []
    assert "Ratings" not in report(summary)


def test_players_who_never_met_have_ratings_too() -> None:
    summary = summarise(map(game_of, plan(2, ("a", "b", "Nim"), ("c", "d", "Nim"))))
    assert "cycles: 0 of 0" in report(summary)
    assert len(summary_sheets(summary)["ratings"]) == 4
    (rated,) = json.loads(to_json(summary, MANIFEST_OF))["ratings"]
    assert len(rated["players"]) == 4
    assert (rated["transitivity"]["degrees"], rated["transitivity"]["p_value"]) == (0, None)


@pytest.mark.parametrize("records", [[], [game_of(next(iter(plan(1))), discarded="void")]])
def test_without_games_there_is_a_report_all_the_same(tmp_path: Path, records: list[GameRecord]) -> None:
    text = write_report(tmp_path, summarise(records), MANIFEST_OF)
    assert "Results" in text
    assert "nan" not in (tmp_path / "results.json").read_text().lower()
    files = {"results.json", "results.txt", *(["results.csv"] if records else [])}
    assert {file.name for file in tmp_path.iterdir()} == files
    for result in json.loads((tmp_path / "results.json").read_text())["results"]:
        assert result["win"] == {"count": 0, "of": 0, "value": None, "low": None, "high": None}


def test_a_sheet_without_rows_now_goes(tmp_path: Path) -> None:
    write_sheets(tmp_path, {"ratings": [{"elo": 1}], "actions": [{"game": "Nim"}]})
    write_sheets(tmp_path, {"ratings": [], "results": []})
    assert [file.name for file in tmp_path.iterdir()] == ["actions.csv"]


def test_random_players_of_any_name_are_rated_as_equals() -> None:
    names = ["one", "other", "third"]
    records = map(at_random, Plan(round_robin(names, ["TicTacToe"]), 40))
    summary = summarise(records)
    (rated,) = summary.rated
    for player in rated.ratings.players:
        assert player.low < 0 < player.high
    assert rated.ratings.games[0].first_player.low > 50, "TicTacToe is easier for who begins"


def test_names_with_commas_and_quotes_stay_whole() -> None:
    name = 'a, "b" | ü'
    summary = summarise(map(game_of, plan(1, (name, "random", "Nim"))))
    assert next(csv.DictReader(to_csv(summary_sheets(summary)["results"]).splitlines()))["policy"] == name
    assert json.loads(to_json(summary, MANIFEST_OF))["results"][0]["policy"] == name


def test_figures_are_written_as_people_read_them() -> None:
    assert percent(Rate(144, 256)) == "56.2 [50.1, 62.2]"
    assert percent(Rate(0, 0)) == "-"
    assert elo(Estimate(-0.2, -10.4, 9.6)) == "0 [-10, 10]"
    assert aligned([("name", "n"), ("a", "10"), ("bcdefg", "5")], left=1).splitlines() == [
        "name     n",
        "----------",
        "a       10",
        "bcdefg   5",
    ]
