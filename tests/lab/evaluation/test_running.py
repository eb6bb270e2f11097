"""Whole evaluations, with engines that are none: what is played, what a kill leaves, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import GameFailure
from recipe.spiral.lab.database import DamagedDatabase
from recipe.spiral.lab.evaluation import evaluation as running
from recipe.spiral.lab.evaluation.exploitability import nash_conv
from recipe.spiral.lab.evaluation.matches import loop
from recipe.spiral.lab.evaluation.matches.matchups import GameId
from recipe.spiral.lab.evaluation.matches.store import FILE, OtherEvaluation, read_games
from recipe.spiral.lab.evaluation.outputs import evaluation_trackers
from recipe.spiral.lab.evaluation.settings import NothingPlayed, Refused
from recipe.spiral.lab.opponents.api.endpoint_client import Unpaid
from recipe.spiral.lab.opponents.api.endpoint_player import BudgetSpent
from recipe.spiral.players.intervals import wilson
from recipe.spiral.players.player import PlayerFailure, Position, Response
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.processes.engine_failure import EngineFailure
from tests.lab.evaluation.made_policies import (
    Characters,
    Fakes,
    adapter,
    composed,
    evaluation,
    model,
    settings,
    tensors,
)


class Killed(BaseException):
    """Ends a test where a kill would."""


@pytest.fixture(autouse=True)
def characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "read_tokenizer", lambda folder: Characters())


@pytest.fixture
def run(tmp_path: Path) -> Iterator[str]:
    """A run with three snapshots."""
    for step in (0, 16, 32):
        model(tmp_path / "kuhn" / "pool" / f"step_{step:06d}", step)
    yield f"policies=[{tmp_path}/kuhn]"


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "evaluation" / "results.json").read_text())
    return found


def both(found: dict[str, Any], policy: str, opponent: str, game: str) -> dict[str, Any]:
    (row,) = [
        row
        for row in found["results"]
        if (row["policy"], row["opponent"], row["game"], row["role"]) == (policy, opponent, game, None)
    ]
    return dict(row)


def test_equals_are_equal_and_the_perfect_never_loses(tmp_path: Path) -> None:
    players = ["policies=[{kind: random, name: one}, {kind: perfect, name: best}]", "opponents=[random]"]
    text = evaluation(tmp_path, Fakes(), *players, "games_per_role=100").run()
    found = results(tmp_path)
    equal = both(found, "one", "random", "TicTacToe")
    assert equal["games"] == 200
    decided = equal["win"]["count"] + equal["loss"]["count"]
    low, high = wilson(equal["win"]["count"], decided)
    assert low < 0.5 < high
    assert both(found, "best", "random", "TicTacToe")["loss"]["count"] == 0
    assert (tmp_path / "evaluation" / "results.txt").read_text() == text + "\n"
    assert f"sqlite3 -readonly {tmp_path}/evaluation/{FILE} 'SELECT value FROM games'" in text


def test_every_match_up_is_played_in_both_roles_with_its_own_model(tmp_path: Path, run: str) -> None:
    fakes = Fakes()
    text = evaluation(tmp_path, fakes, run, "opponents=[random]", "match_ups=[cross,round_robin,own_past]").run()
    games = Counter((r.game, *r.players) for r in read_games(tmp_path / "evaluation"))
    names = [f"kuhn/step_{step:06d}" for step in (0, 16, 32)] + ["random"]
    assert games == {("TicTacToe", a, b): 3 for a in names for b in names if a != b}
    assert fakes.most == 2 and not fakes.running, "two models at a time, and none is left"
    found = results(tmp_path)
    assert {(row["policy"], row["opponent"]) for row in found["own_past"]} == {
        (names[1], names[0]),
        (names[2], names[1]),
    }
    assert found["ratings"] and "Ratings: TicTacToe" in text


@pytest.mark.parametrize("error", [EngineFailure("gone"), Killed()])
def test_a_killed_evaluation_goes_on_and_plays_nothing_twice(tmp_path: Path, run: str, error: BaseException) -> None:
    overrides = [run, "opponents=[random]", "match_ups=[cross,round_robin]", "concurrency=4"]
    first = Fakes(fail_after=60, error=error)
    with pytest.raises(type(error)):
        evaluation(tmp_path, first, *overrides).run()
    assert not first.running, "engines are closed however it ends"
    played = [GameId.of(record) for record in read_games(tmp_path / "evaluation")]
    assert 0 < len(played) < 36
    evaluation(tmp_path, Fakes(), *overrides).run()
    all_of_them = [GameId.of(record) for record in read_games(tmp_path / "evaluation")]
    assert all_of_them[: len(played)] == played and len(all_of_them) == len(set(all_of_them)) == 36
    whole = results(tmp_path)

    again = Fakes()
    evaluation(tmp_path, again, *overrides).run()
    assert not again.events, "nothing is missing: no engine is started"
    evaluation(tmp_path / "at once", Fakes(), *overrides).run()
    unbroken = results(tmp_path / "at once")
    assert unbroken["results"] == whole["results"] == results(tmp_path)["results"], "as if it had not been killed"


def test_a_damaged_row_is_named_and_made_again_once_it_is_removed(tmp_path: Path) -> None:
    overrides = ["policies=[random]", "opponents=[perfect]", "exploitability.games=[KuhnPoker]"]
    overrides += ["exploitability.by=samples", "exploitability.samples=20"]
    evaluation(tmp_path, Fakes(), *overrides).run()
    before = results(tmp_path)
    for table in ("games", "policy_tables"):
        with closing(sqlite3.connect(tmp_path / "evaluation" / FILE, isolation_level=None)) as database:
            ((row,),) = database.execute(f"SELECT max(rowid) FROM {table}")  # of a policy table its rows are before it
            database.execute(f"UPDATE {table} SET value = replace(value, '0', '1') WHERE rowid = {row}")
            with pytest.raises(DamagedDatabase, match=f"row {row} of the table {table} was changed"):
                evaluation(tmp_path, Fakes(), *overrides).run()
            database.execute(f"DELETE FROM {table} WHERE rowid = {row}")
        evaluation(tmp_path, Fakes(), *overrides).run()
        assert results(tmp_path) == before


def test_going_on_with_other_weights_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "mine")
    overrides = [f"policies=[{folder}]", "opponents=[random]"]
    evaluation(tmp_path, Fakes(), *overrides).run()
    tensors(folder / "model.safetensors", 9)
    with pytest.raises(OtherEvaluation, match=r"policies\.mine\.model\.model\.safetensors"):
        evaluation(tmp_path, Fakes(), *overrides).run()


def test_adapters_play_their_own_base(tmp_path: Path) -> None:
    base = model(tmp_path / "base")
    lora = adapter(tmp_path / "lora", base)
    fakes = Fakes()
    evaluation(tmp_path, fakes, f"policies=[{lora}]", f"opponents=[{base}]").run()
    assert fakes.events == [("start", "base"), ("close", "base")]
    assert both(results(tmp_path), "lora", "base", "TicTacToe")["games"] == 6


@pytest.mark.parametrize("follow", ["null", "5"])
def test_followed_checkpoints_are_one_run_in_a_tracker(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    (tmp_path / "kuhn" / "config.yaml").write_text("trainer: {project_name: p, experiment_name: e}")
    runs: list[str] = []
    monkeypatch.setattr(evaluation_trackers, "_log", lambda *_: runs.append(os.environ["WANDB_RUN_ID"]))
    for step in (16, 32):
        snapshot = f"policies=[{{path: {tmp_path}/kuhn, step: {step}}}]"
        folder = f"eval_dir={tmp_path}/e/step_{step:06d}"
        evaluation(
            tmp_path, Fakes(), snapshot, folder, f"follow={follow}", "logger=[wandb]", "opponents=[random]"
        ).run()
    assert len(runs) == 2 and len(set(runs)) == (1 if follow == "5" else 2)


def test_a_policy_is_sampled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nash_conv, "interval", partial(nash_conv.interval, resamples=40))
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "opponents=[]", "games=[KuhnPoker]"]
    overrides += ["exploitability.games=[KuhnPoker]", "exploitability.by=samples", "exploitability.samples=50"]
    fakes = Fakes()
    text = evaluation(tmp_path, fakes, *overrides).run()
    assert fakes.responses == 12 * 50
    rows = {row["policy"]: row for row in results(tmp_path)["exploitability"]}
    low, high = rows["mine"]["interval"]
    assert low <= 11 / 12 <= high and rows["mine"]["by"] == "samples", "it plays at random"
    assert rows["(uniform play)"]["nash_conv"] == pytest.approx(11 / 12)
    assert "Exploitability" in text
    header, mine, _ = csv.reader((tmp_path / "evaluation" / "exploitability.csv").open())
    row = dict(zip(header, mine, strict=True))
    assert row["policy"] == "mine" and float(row["nash_conv_low"]) == pytest.approx(low, rel=1e-4)

    again = Fakes()
    evaluation(tmp_path, again, *overrides).run()
    assert not again.events and results(tmp_path)["exploitability"] == list(rows.values())
    more = Fakes()
    evaluation(tmp_path, more, *overrides, "exploitability.samples=60").run()
    assert more.responses == 12 * 60, "another number of samples is another reading"


class Failing(RandomPlayer):
    """Fails at the first try of some games."""

    def __init__(self, error: Exception, always: bool = False) -> None:
        self.error, self.always = error, always

    async def respond(self, position: Position) -> Response:
        if self.always or (position.key.index == 1 and position.key.retry == 0):
            raise self.error
        return await super().respond(position)


def failing(monkeypatch: pytest.MonkeyPatch, player: Failing) -> None:
    def make(kind: str, settings: object, name: str) -> RandomPlayer:
        made = player if name == "bad" else RandomPlayer()
        made.name = name
        return made

    monkeypatch.setattr(loop, "make_player", make)


BAD = ["policies=[{kind: random, name: bad}]", "opponents=[random]"]


@pytest.mark.parametrize("failure", [PlayerFailure("no answer"), GameFailure("a TypeError of TextArena's")])
def test_void_games_are_counted_and_played_again(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, Failing(failure))
    evaluation(tmp_path, Fakes(), *BAD).run()
    row = both(results(tmp_path), "bad", "random", "TicTacToe")
    assert (row["games"], row["void"]) == (6, 2)


def test_games_that_are_void_again_and_again_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Failing(PlayerFailure("no answer"), always=True))
    told = (
        r"^no game was played: bad against random: 6 games were void 3 times and are missing, the first: PlayerFailure"
    )
    with pytest.raises(NothingPlayed, match=f"{told}: no answer;"):
        evaluation(tmp_path, Fakes(), *BAD, "void_retries=2").run()
    row = both(results(tmp_path), "bad", "random", "TicTacToe")
    assert (row["games"], row["void"]) == (0, 18)
    with pytest.raises(NothingPlayed, match=told):
        evaluation(tmp_path, Fakes(), *BAD, "void_retries=2").run()
    assert both(results(tmp_path), "bad", "random", "TicTacToe")["void"] == 18, "tries of all starts count"


SAMPLED = ["match_ups=[]", "games=[]", "exploitability.games=[KuhnPoker]", "exploitability.by=samples"]


def test_a_failed_sample_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Failing(PlayerFailure("no answer")))
    sampled = [*BAD, *SAMPLED, "exploitability.samples=2"]
    with pytest.raises(PlayerFailure, match="no answer"):
        evaluation(tmp_path, Fakes(), *sampled, "void_retries=0").run()
    evaluation(tmp_path, Fakes(), *sampled, "void_retries=1").run()
    assert results(tmp_path)["exploitability"][0]["policy"] == "bad"


@pytest.mark.parametrize("spent", [BudgetSpent, Unpaid])
def test_a_sample_that_may_not_be_paid_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spent: type[PlayerFailure]
) -> None:
    failing(monkeypatch, Failing(spent("spent")))
    with pytest.raises(spent):
        evaluation(tmp_path, Fakes(), *BAD, *SAMPLED).run()


def test_samples_of_whole_information_sets_are_kept(tmp_path: Path) -> None:
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", *SAMPLED, "exploitability.samples=5", "concurrency=2"]
    with pytest.raises(EngineFailure):
        evaluation(tmp_path, Fakes(fail_after=22, error=EngineFailure("gone")), *overrides).run()
    evaluation(tmp_path, rest := Fakes(), *overrides).run()
    assert rest.responses == (12 - 4) * 5
    evaluation(tmp_path / "at once", Fakes(), *overrides).run()
    assert results(tmp_path)["exploitability"] == results(tmp_path / "at once")["exploitability"]


@pytest.mark.parametrize("spent", [BudgetSpent, Unpaid])
def test_a_spent_budget_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spent: type[PlayerFailure]) -> None:
    failing(monkeypatch, Failing(spent("spent")))
    with pytest.raises(spent):
        evaluation(tmp_path, Fakes(), *BAD, "concurrency=1").run()
    assert len(list(read_games(tmp_path / "evaluation"))) == 1, "what was played by then is kept"


def test_a_prompt_that_is_too_long_is_told(tmp_path: Path) -> None:
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "data.max_prompt_length=10"]
    with pytest.raises(
        ValueError, match=r"^data\.max_prompt_length=10: mine has prompts of \d+ tokens and more in Tic"
    ):
        evaluation(tmp_path, Fakes(), *overrides)
    sampled = ["games=[]", "exploitability.games=[KuhnPoker]", "exploitability.by=samples"]
    with pytest.raises(ValueError, match="tokens and more in KuhnPoker"):
        evaluation(tmp_path, Fakes(), *overrides, *sampled)


def test_games_that_a_prompt_ended_are_counted(tmp_path: Path) -> None:
    """A dialogue grows: the first prompts fit, later ones do not."""
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "opponents=[random]", "prompt.style=dialogue"]
    text = evaluation(tmp_path, Fakes(), *overrides, "data.max_prompt_length=400").run()
    row = both(results(tmp_path), "mine", "random", "TicTacToe")
    ended = row["prompt_too_long"]["count"]
    assert 0 < ended <= row["loss"]["count"]
    assert f"{ended} games ended because a prompt was longer than data.max_prompt_length=400" in text


def test_longer_prompts_may_be_allowed_afterwards(tmp_path: Path) -> None:
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "opponents=[random]", "data.max_response_length=9"]
    evaluation(tmp_path, Fakes(), *overrides, "data.max_prompt_length=2000").run()
    evaluation(tmp_path, again := Fakes(), *overrides, "data.max_prompt_length=3000").run()
    assert again.responses == 0, "no game is played again"


def test_a_length_that_nothing_uses_may_change_and_one_that_games_used_may_not(tmp_path: Path) -> None:
    """As in run_scripts/paper/evaluate.sh: benchmarks alone, before and after a run with its own lengths."""
    pytest.importorskip("math_verify")
    (tmp_path / "aime24.jsonl").write_text('{"id": 1, "problem": "Say [3].", "answer": "[3]"}\n')
    policies = [f"policies=[{model(tmp_path / 'mine')}]", "opponents=[random]"]
    policies += ["benchmarks.names=[aime24]", f"benchmarks.path={tmp_path}"]
    alone = [*policies, "games=[]", "exploitability.games=[]", "optimality.games=[]"]
    for length in (9, 12):
        evaluation(tmp_path, Fakes(), *alone, f"data.max_response_length={length}").run()
    evaluation(tmp_path, Fakes(), *policies, "data.max_response_length=9").run()
    evaluation(tmp_path, Fakes(), *alone, "data.max_response_length=12").run()
    with pytest.raises(OtherEvaluation, match=r"settings\.max_response_length: 9 there, 12 now"):
        evaluation(tmp_path, Fakes(), *policies, "data.max_response_length=12").run()


def test_a_policy_with_longer_responses_joins_with_the_length_of_the_others(tmp_path: Path) -> None:
    """That it cuts them is for the user to say."""
    overrides, one, other = ["opponents=[random]"], model(tmp_path / "one"), model(tmp_path / "other")
    for folder, length in ((one, 16), (other, 128)):
        (folder / "config.yaml").write_text(f"data: {{max_prompt_length: 2000, max_response_length: {length}}}\n")
    evaluation(tmp_path, Fakes(), f"policies=[{one}]", *overrides).run()
    overrides.append(f"policies=[{one},{other}]")
    with pytest.raises(OtherEvaluation, match=r"16 there, 128 now\n  data\.max_response_length=16 is the length there"):
        evaluation(tmp_path, Fakes(), *overrides).run()
    evaluation(tmp_path, Fakes(), *overrides, "data.max_response_length=16").run()


def test_any_player_is_read_by_samples(tmp_path: Path) -> None:
    overrides = ["policies=[random,{kind: perfect, alpha: 0.2}]", "opponents=[]", "match_ups=[]"]
    overrides += ["exploitability.games=[KuhnPoker]", "exploitability.by=samples", "exploitability.samples=400"]
    evaluation(tmp_path, Fakes(), *overrides).run()
    found = {row["policy"]: row for row in results(tmp_path)["exploitability"]}
    assert found["random"]["interval"][0] < 11 / 12 < found["random"]["interval"][1]
    assert found["perfect"]["interval"][0] < 0.02 and found["perfect"]["nash_conv"] < 0.2
    rows = list(csv.DictReader((tmp_path / "evaluation" / "actions.csv").open()))
    assert len(rows) == 2 * 12 * 3 and {row["samples"] for row in rows} == {"400"}
    assert all(float(row["low"]) <= float(row["probability"]) <= float(row["high"]) for row in rows)
    jack = [row for row in rows if row["policy"] == "perfect" and row["private"] == "J" and row["history"] == "[bet]"]
    assert [(row["action"], row["probability"]) for row in jack] == [
        *(("[call]", "0"), ("[fold]", "1"), ("(none that is legal)", "0"))
    ]


def test_who_is_not_measured_is_named(tmp_path: Path) -> None:
    (tmp_path / "aime24.jsonl").write_text('{"id": 1, "problem": "Say [3].", "answer": "[3]"}\n')
    overrides = ["policies=[random]", "opponents=[perfect]"]
    overrides += ["exploitability.games=[KuhnPoker]", "benchmarks.names=[aime24]"]
    evaluation(tmp_path, Fakes(), *overrides, f"benchmarks.path={tmp_path}").run()
    assert results(tmp_path)["notes"] == [
        "not measured: exploitability of random: it has no weights; exploitability.by=samples measures it, too",
        "not measured: benchmarks of random: only policies with weights are asked",
    ]


def test_too_many_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exploitability\.samples=200: at LiarsDice-1's 24576 information sets"):
        settings(tmp_path, "exploitability.games=[LiarsDice-1]", "exploitability.by=samples")


def test_match_ups_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    overrides = ["policies=[random]", "opponents=[perfect,{kind: alphabeta, depth: 1}]"]
    made = evaluation(tmp_path, Fakes(), *overrides, "games=[TicTacToe,ConnectFour]")
    assert [(one.opponent, one.game) for one in made.schedule.plan.match_ups] == [
        ("perfect", "TicTacToe"),
        ("alphabeta-1", "ConnectFour"),
    ]
    text = made.run()
    assert "not played: random against perfect in ConnectFour" in text


def test_benchmarks_are_asked_once_and_judged(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    (tmp_path / "aime24.jsonl").write_text('{"id": 1, "problem": "Say [3].", "answer": "[3]"}\n')
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "games=[]", "match_ups=[]"]
    overrides += ["benchmarks.names=[aime24]", f"benchmarks.path={tmp_path}", "benchmarks.samples=2"]
    text = evaluation(tmp_path, fakes := Fakes(), *overrides).run()
    assert fakes.responses == 2
    (score,) = results(tmp_path)["benchmarks"]["mine"]
    assert (score["benchmark"], score["samples"], score["avg"]["value"]) == ("aime24", 2, 1.0)
    sheet = (tmp_path / "evaluation" / "benchmarks.csv").read_text()
    assert sheet.splitlines()[1].startswith("mine,aime24,1,2,1,"), sheet
    assert "AIME24" in text and "Qwen3-4B-Base" in text
    evaluation(tmp_path, again := Fakes(), *overrides).run()
    assert again.responses == 0 and again.events == [], "no engine is started for answers that are there"


def test_steps_of_two_runs_are_not_each_others_past(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for step in (0, 16):
            model(tmp_path / name / "pool" / f"step_{step:06d}", step + 1)
    made = evaluation(tmp_path, Fakes(), f"policies=[{tmp_path}/a,{tmp_path}/b]", "match_ups=[own_past]")
    assert [(one.policy, one.opponent) for one in made.schedule.plan.match_ups] == [
        ("a/step_000016", "a/step_000000"),
        ("b/step_000016", "b/step_000000"),
    ]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("policies=[]", "name at least one"),
        ("policies=tiny", "policies='tiny': must be a list"),
        ("policies=[random]", "random is there twice"),
        ("games=[Chess]", "unknown game"),
        ("games=KuhnPoker", "games='KuhnPoker': must be a valid tuple"),
        ("match_ups=[league]", r"match_ups\.0='league': must be 'cross', 'round_robin' or 'own_past'"),
        ("match_ups=[own_past]", "no run with two snapshots"),
        ("games_per_role=0", "games_per_role"),
        ("concurrency=0", "concurrency"),
        ("void_retries=-1", "void_retries"),
        ("randomness=mine", "randomness='mine': must be 'shared' or 'own'"),
        ("anchor=nobody", "anchor=nobody"),
        ("seed=x", "seed"),
        ("seed=-1", "seed=-1: must be greater than or equal to 0"),
        ("sampling.top_k=0", r"sampling\.top_k: 0: must be -1 or at least 1"),
        ("prompt.template=x", "prompt.template"),
        ("prompt.style=x", "prompt.style"),
        ("rules.illegal_rewards=[1,1]", "rules.illegal_rewards"),
        ("exploitability={games: [TicTacToe]}", r"exploitability\.games\.0: TicTacToe: must be one of KuhnPoker"),
        ("optimality={games: [KuhnPoker]}", r"optimality\.games\.0: KuhnPoker: must be one of Nim, TicTacToe"),
        ("exploitability.by=guess", "exploitability.by='guess'"),
        ("+exploitability.sample=3", "exploitability.sample: there is no such setting; known: games, by, samples"),
        ("sampling.temperature=-1", "sampling.temperature"),
        ("sampling.temperature=2.1", r"sampling\.temperature=2\.1: must be less than or equal to 2"),
        ("benchmarks.names=[chess]", "chess"),
        ("benchmarks.samples=0", "benchmarks.samples"),
        ("benchmarks.limit=0", r"benchmarks\.limit=0: must be greater than or equal to 1"),
        ("benchmarks.paper_model=x", "benchmarks.paper_model"),
        ("benchmarks.template=x", "x_general"),
        ("engine.seconds=long", "engine.seconds='long': must be a valid number"),
        ("engine.gpu_memory_utilization=high", "engine.gpu_memory_utilization='high'"),
        ("rules.turn_cap=few", "rules.turn_cap=few"),
        ("sampling.top_p=2", r"sampling\.top_p=2: must be less than or equal to 1"),
        ("sampling.top_p=0", r"sampling\.top_p=0: must be greater than 0"),
        ("sampling.top_k=-2", r"sampling\.top_k=-2: must be greater than or equal to -1"),
        ("follow=inf", "follow=inf: must be a finite number"),
        ("games_per_role=1000001", "games_per_role=1000001: must be less than or equal to 1000000"),
        ("games=[]", "nothing is to be evaluated"),
        ("match_ups=[]", "nothing is to be evaluated"),
        ("cache_dir=/dev/null/cache", "cache_dir=/dev/null/cache: /dev/null is no folder"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, override: str, told: str) -> None:
    players = ["policies=[{kind: random, name: one}]", "opponents=[random,perfect]"]
    with pytest.raises(ValueError, match=told):
        running.Evaluation(settings(tmp_path, *players, override), Fakes(), lambda line: None)


def test_a_runs_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(ValueError, match=rf"^eval_dir={folder}: is a run's folder; give another"):
        settings(tmp_path)


def test_an_endpoint_where_nobody_is_is_refused_before_its_games(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs the extra 'api'")
    endpoint = '{kind: api, model: some, base_url: "http://127.0.0.1:9/v1", api_key_env: null}'
    made = evaluation(tmp_path, Fakes(), "policies=[random]", f"opponents=[{endpoint}]")
    with pytest.raises(Refused, match=r"^opponents: some: "):
        made.run()
    assert list(read_games(tmp_path / "evaluation")) == []
    with pytest.raises(Refused, match=r"^policies: some: "):
        evaluation(tmp_path, Fakes(), f"policies=[{endpoint}]", "opponents=[random]").run()
    corrected = ["policies=[random]", "opponents=[{kind: random, name: some}]"]
    evaluation(tmp_path, Fakes(), *corrected, "seed=1").run()
    with pytest.raises(OtherEvaluation, match="seed: 1 there, 2 now"):  # who has played keeps the folder
        evaluation(tmp_path, Fakes(), *corrected, "seed=2").run()


def test_nothing_to_play_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing can be played: random against perfect in ConnectFour"):
        evaluation(tmp_path, Fakes(), "policies=[random]", "opponents=[perfect]", "games=[ConnectFour]")
    nobody = ["policies=[perfect]", "opponents=[random]", "games=[]", "optimality.games=[Nim]"]
    with pytest.raises(
        ValueError, match=r"nothing is to be evaluated; .*; not measured: optimality of perfect: it has"
    ):
        evaluation(tmp_path, Fakes(), *nobody)
    evaluation(tmp_path, Fakes(), *nobody, "optimality.by=samples")


def test_scores_are_those_of_the_whole_distribution(tmp_path: Path) -> None:
    for override in ("sampling.top_p=0.9", "sampling.top_k=5", "sampling.temperature=0"):
        with pytest.raises(ValueError, match="by=scores"):
            settings(tmp_path, "exploitability.games=[KuhnPoker]", override)
    settings(tmp_path, "exploitability.games=[KuhnPoker]", "exploitability.by=samples", "sampling.top_p=0.9")


def test_scores_of_a_pools_member_end_where_its_runs_model_does(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_from, asked = tmp_path / "started-from", list[Path]()
    (tmp_path / "kuhn" / "config.yaml").write_text(f"actor_rollout_ref: {{model: {{path: {started_from}}}}}")
    monkeypatch.setattr(running, "load", lambda *_: None)
    monkeypatch.setattr(running, "end_tokens", lambda folder: asked.append(folder) or {0})
    made = evaluation(tmp_path, Fakes(), run)
    for policy in made.policies:
        made._score(policy, [])
    assert asked == [started_from] * 3


def test_a_model_that_one_gpu_does_not_hold_is_refused_by_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import OutOfMemoryError

    def load(*_: object) -> Any:
        raise OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(running, "load", load)
    made = evaluation(tmp_path, Fakes(), f"policies=[{model(tmp_path / 'mine')}]", "exploitability.games=[KuhnPoker]")
    told = r"^by=scores: mine must fit on one GPU.*CUDA out of memory\); set exploitability\.by=samples optimality"
    with pytest.raises(Refused, match=told):
        made.run()


def test_policies_with_a_dialogue_are_not_read_by_one_observation(tmp_path: Path) -> None:
    mine = f"policies=[{model(tmp_path / 'mine')}]"
    with pytest.raises(ValueError, match=r"prompt\.style=dialogue"):
        evaluation(tmp_path, Fakes(), mine, "prompt.style=dialogue", "exploitability.games=[KuhnPoker]")


def test_the_config_as_it_is_can_be_run(tmp_path: Path) -> None:
    config = composed(f"eval_dir={tmp_path}")
    made = running.Settings.from_config(config)
    assert made.games == ("TicTacToe", "KuhnPoker") and made.games_per_role == 64
    assert made.exploitability.by == "scores" and made.engine.modules


def test_lengths_are_the_policies_longest_unless_told(tmp_path: Path) -> None:
    for name, response in (("a", 20), ("b", 30)):
        model(tmp_path / name / "pool" / "step_000001")
        config = f"data: {{max_prompt_length: {response + 300}, max_response_length: {response}}}\n"
        (tmp_path / name / "config.yaml").write_text(config)
    policies = f"policies=[{tmp_path}/a,{tmp_path}/b]"
    made = evaluation(tmp_path, Fakes(), policies).settings
    assert (made.max_prompt_length, made.max_response_length, made.max_model_len) == (330, 30, 360)
    told = evaluation(tmp_path, Fakes(), policies, "data.max_response_length=7").settings
    assert (told.max_prompt_length, told.max_response_length) == (330, 7)


def test_a_model_must_have_positions_for_the_lengths(tmp_path: Path) -> None:
    mine = model(tmp_path / "mine")
    overrides = [f"policies=[{mine}]", "data.max_prompt_length=290", "data.max_response_length=11"]
    for config, fits in (
        ({"max_position_embeddings": 300}, False),
        ({"max_position_embeddings": 301}, True),
        ({"max_position_embeddings": 300, "rope_scaling": {"factor": 2.0}}, True),
    ):
        (mine / "config.json").write_text(json.dumps(config))
        if fits:
            evaluation(tmp_path, Fakes(), *overrides)
        else:
            with pytest.raises(ValueError, match="has 300 positions, and 301 are needed"):
                evaluation(tmp_path, Fakes(), *overrides)
