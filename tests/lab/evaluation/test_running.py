"""Whole evaluations, with engines that are none: what is played, what a kill leaves, what is refused, how it ends."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import GameFailure
from recipe.spiral.lab import own_command
from recipe.spiral.lab.evaluation import command as main_eval
from recipe.spiral.lab.evaluation import matches
from recipe.spiral.lab.evaluation.engines import EngineFailure
from recipe.spiral.lab.evaluation.evaluation import Evaluation
from recipe.spiral.lab.evaluation.evaluation_folder import read_games
from recipe.spiral.lab.evaluation.exploitability import nash_conv
from recipe.spiral.lab.evaluation.matches import GameId
from recipe.spiral.lab.evaluation.settings import Refused
from recipe.spiral.lab.opponents.api_player import NotAsked
from recipe.spiral.players.player import PlayerFailure, Position, RandomPlayer, Response
from recipe.spiral.processes import launch
from tests.lab.evaluation.made import Characters, Fakes, composed, evaluation, model, tensors
from tests.opponents.folders import Killed


@pytest.fixture(autouse=True)
def characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "read_tokenizer", lambda folder: Characters())


@pytest.fixture
def run(tmp_path: Path) -> Iterator[str]:
    """A run with three snapshots."""
    for step in (0, 16, 32):
        model(tmp_path / "kuhn" / "pool" / f"step_{step:06d}", step)
    yield f"policies=[{tmp_path}/kuhn]"


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "evaluation" / "results.json").read_text())
    return found


def both(found: dict[str, Any], policy: str, opponent: str) -> dict[str, Any]:
    (row,) = (
        row
        for row in found["results"]
        if (row["policy"], row["opponent"], row["game"], row["role"]) == (policy, opponent, "TicTacToe", None)
    )
    return dict(row)


def test_the_perfect_never_loses_and_people_are_told(tmp_path: Path) -> None:
    players = ["policies=[{kind: perfect, name: best}]", "opponents=[random]"]
    text = evaluation(tmp_path, Fakes(), *players, "games_per_role=50").run()
    row = both(results(tmp_path), "best", "random")
    assert (row["games"], row["loss"]["count"]) == (100, 0)
    assert text.startswith("best in TicTacToe: beats random in ") and f"report {tmp_path}/evaluation" in text


def test_every_match_up_is_played_in_both_roles_with_its_own_model(tmp_path: Path, run: str) -> None:
    fakes = Fakes()
    text = evaluation(tmp_path, fakes, run, "opponents=[random]", "match_ups=[cross,round_robin]").run()
    games = Counter((r.game, *r.players) for r in read_games(tmp_path / "evaluation"))
    names = [f"kuhn/step_{step:06d}" for step in (0, 16, 32)] + ["random"]
    assert games == {("TicTacToe", a, b): 3 for a in names for b in names if a != b}
    assert fakes.most == 2 and not fakes.running, "two models at a time, and none is left"
    assert results(tmp_path)["ratings"][0]["anchor"] == "random" and "Elo from TicTacToe (random is 0)" in text


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
    assert results(tmp_path / "at once")["results"] == whole["results"] == results(tmp_path)["results"]
    evaluation(tmp_path, Fakes(), *overrides, "games_per_role=1").run()
    assert both(results(tmp_path), "kuhn/step_000016", "random")["games"] == 2, "of a larger plan's games only its own"


def test_going_on_with_other_weights_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "mine")
    overrides = [f"policies=[{folder}]", "opponents=[random]"]
    evaluation(tmp_path, Fakes(), *overrides).run()
    tensors(folder / "model.safetensors", 9)
    with pytest.raises(Refused, match=r"policies\.mine\.model\.model\.safetensors"):
        evaluation(tmp_path, Fakes(), *overrides).run()


SAMPLED = ["match_ups=[]", "games=[]", "exploitability.games=[KuhnPoker]", "exploitability.by=samples"]


def test_a_policy_is_sampled_once_and_whole_information_sets_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nash_conv, "interval", partial(nash_conv.interval, resamples=40))
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", *SAMPLED, "exploitability.samples=5", "concurrency=2"]
    with pytest.raises(EngineFailure):
        evaluation(tmp_path, Fakes(fail_after=22, error=EngineFailure("gone")), *overrides).run()
    text = evaluation(tmp_path, rest := Fakes(), *overrides).run()
    assert rest.responses == (12 - 4) * 5 and "mine in KuhnPoker: NashConv" in text
    mine, uniform = results(tmp_path)["exploitability"]
    assert mine["by"] == "samples" and mine["interval"][0] <= mine["nash_conv"] <= mine["interval"][1]
    assert uniform["nash_conv"] == pytest.approx(11 / 12)
    evaluation(tmp_path / "at once", Fakes(), *overrides).run()
    evaluation(tmp_path, again := Fakes(), *overrides).run()
    assert not again.events
    assert results(tmp_path)["exploitability"] == results(tmp_path / "at once")["exploitability"] == [mine, uniform]


class Failing(RandomPlayer):
    """Fails at the first try of some games."""

    def __init__(self, error: Exception, always: bool = False) -> None:
        self.error, self.always = error, always

    async def respond(self, position: Position) -> Response:
        if self.always or (position.key.index == 1 and position.key.retry == 0):
            raise self.error
        return await super().respond(position)


def failing(monkeypatch: pytest.MonkeyPatch, player: Failing) -> None:
    def make(kind: str, settings: object, name: str, run_dir: str) -> RandomPlayer:
        made = player if name == "bad" else RandomPlayer()
        made.name = name
        return made

    monkeypatch.setattr(matches, "make_player", make)


BAD = ["policies=[{kind: random, name: bad}]", "opponents=[random]"]


@pytest.mark.parametrize("failure", [PlayerFailure("no answer"), GameFailure("a TypeError of TextArena's")])
def test_void_games_are_counted_and_played_again(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, Failing(failure))
    evaluation(tmp_path, Fakes(), *BAD).run()
    row = both(results(tmp_path), "bad", "random")
    assert (row["games"], row["void"]) == (6, 2)


def test_games_that_are_void_again_and_again_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Failing(PlayerFailure("no answer"), always=True))
    for _ in range(2):
        with pytest.raises(PlayerFailure, match="6 games were void 3 times and are missing, the first: PlayerF"):
            evaluation(tmp_path, Fakes(), *BAD, "void_retries=2").run()
        row = both(results(tmp_path), "bad", "random")
        assert (row["games"], row["void"]) == (0, 18), "tries of all starts count"


@pytest.mark.parametrize("wanted", [[], SAMPLED])
def test_a_spent_budget_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[str]) -> None:
    failing(monkeypatch, Failing(NotAsked("spent")))
    with pytest.raises(NotAsked):
        evaluation(tmp_path, Fakes(), *BAD, *wanted, "concurrency=1").run()
    assert len(list(read_games(tmp_path / "evaluation"))) == (0 if wanted else 1), "what was played by then is kept"


def test_prompts_that_are_too_long(tmp_path: Path) -> None:
    """A dialogue grows: the first prompts fit, later ones do not; longer ones may be allowed afterwards."""
    overrides = [f"policies=[{model(tmp_path / 'mine')}]", "opponents=[random]", "prompt.style=dialogue"]
    with pytest.raises(ValueError, match=r"^data\.max_prompt_length=10: mine has prompts of"):
        evaluation(tmp_path, Fakes(), *overrides, "data.max_prompt_length=10")
    text = evaluation(tmp_path, Fakes(), *overrides, "data.max_prompt_length=400").run()
    row = both(results(tmp_path), "mine", "random")
    ended = row["prompt_too_long"]["count"]
    assert 0 < ended <= row["loss"]["count"] and f"{ended} games ended because a prompt was longer" in text
    evaluation(tmp_path, again := Fakes(), *overrides, "data.max_prompt_length=3000").run()
    assert again.responses == 0, "no game is played again"


def test_benchmarks_are_asked_once_and_their_lengths_are_their_own(tmp_path: Path) -> None:
    """As in run_scripts/paper_benchmarks.sh: benchmarks alone, before and after a run with its own lengths."""
    pytest.importorskip("math_verify")
    (tmp_path / "aime24.jsonl").write_text('{"id": 1, "problem": "Say [3].", "answer": "[3]"}\n')
    asked = ["benchmarks.names=[AIME24]", f"benchmarks.path={tmp_path}", "benchmarks.samples=2", "opponents=[random]"]
    policies = [f"policies=[{model(tmp_path / 'mine')}, {{kind: random, name: r2}}]", *asked]
    text = evaluation(tmp_path, fakes := Fakes(), *policies, "games=[]", "data.max_response_length=9").run()
    (score,) = results(tmp_path)["benchmarks"]["mine"]
    assert (fakes.responses, score["benchmark"], score["avg"]["value"]) == (2, "aime24", 1.0)
    assert "mine in aime24: 100% [" in text and "not measured: benchmarks of r2" in text
    evaluation(tmp_path, again := Fakes(), *policies, "games=[]", "data.max_response_length=12").run()
    assert again.responses == 0 and again.events == [], "no engine is started for answers that are there"
    evaluation(tmp_path, Fakes(), *policies, "data.max_response_length=9").run()
    with pytest.raises(Refused, match=r"settings\.max_response_length: 9 there, 12 now"):
        evaluation(tmp_path, Fakes(), *policies, "data.max_response_length=12").run()


def test_who_is_not_played_or_measured_is_named(tmp_path: Path) -> None:
    overrides = ["policies=[random]", "opponents=[perfect]", "games=[TicTacToe,ConnectFour]"]
    made = evaluation(tmp_path, Fakes(), *overrides, "exploitability.games=[KuhnPoker]")
    assert [game for *_, game in made.match_ups] == ["TicTacToe"]
    assert "not played: random against perfect in ConnectFour: " in made.run()
    assert len(results(tmp_path)["notes"]) == 2
    with pytest.raises(ValueError, match="ConnectFour"):
        evaluation(tmp_path, Fakes(), *overrides[:2], "games=[ConnectFour]")


@pytest.mark.parametrize(
    "override",
    [
        "policies=[]",
        "policies=[random]",
        "games=[Chess]",
        "games_per_role=0",
        "prompt.template=x",
        "rules.illegal_rewards=[1,1]",
        "exploitability.games=[TicTacToe]",
        "sampling.temperature=2.1",
        "benchmarks.names=[chess]",
        "engine.seconds=0",
        "games=[]",
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, override: str) -> None:
    players = ["policies=[{kind: random, name: one}]", "opponents=[random,perfect]"]
    with pytest.raises(ValueError, match=override.partition("=")[0].split(".")[0]):
        evaluation(tmp_path, Fakes(), *players, override)


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


# -- the entry: exit statuses and last lines ---------------------------------------------------------------------------

FEW = ["policies=[random]", "opponents=[perfect]", "games_per_role=2", "games=[TicTacToe]"]
FEW += ["exploitability.games=[]", "optimality.games=[]"]


@pytest.fixture(autouse=True)
def nothing_else_is_ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is pytest's: its children and signals are left alone."""

    @contextmanager
    def clean_run(folder: Path, setting: str) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        with own_command.only_one(folder, setting):
            yield

    monkeypatch.setattr(own_command, "clean_run", clean_run)
    monkeypatch.setattr(launch, "set_environment", lambda variables: None)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def status_of(tmp_path: Path, *overrides: str) -> int:
    return main_eval.run(composed(f"eval_dir={tmp_path}/evaluation", *FEW, *overrides))


def test_it_plays_and_says_how_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(tmp_path) == 0
    said = capsys.readouterr().out
    assert "random in TicTacToe: " in said and f"results: {tmp_path}/evaluation/results.json" in said


@pytest.mark.parametrize("override", ["games=[Chess]", "policies=[/no/such]", "games_per_role=0"])
def test_a_bad_config_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, override: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["main_eval", f"eval_dir={tmp_path}/evaluation", *FEW, override])
    with pytest.raises(SystemExit) as end:
        main_eval.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and override.partition("=")[0].split(".")[-1] in line


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (EngineFailure("vLLM's processes ended"), 1, "what was played is kept"),
        (OSError(28, "No space left on device", "/f"), 1, "what was played is kept"),
        (Refused("vLLM has no nope"), 2, "spiral: vLLM has no nope"),
        (NotAsked("no more"), 1, "no more; what was played is kept"),
    ],
)
def test_how_it_ends(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    told: str,
) -> None:
    def fail(self: Any) -> str:
        raise error

    monkeypatch.setattr(Evaluation, "run", fail)
    assert status_of(tmp_path) == status
    assert told in capsys.readouterr().err.splitlines()[-1]
