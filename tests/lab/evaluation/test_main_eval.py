"""The entry of evaluations: exit statuses and last lines. What it plays is tested in ``evaluation/test_running``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab import own_command
from recipe.spiral.lab.evaluation import command as main_eval
from recipe.spiral.lab.evaluation.engines import EngineFailure, UnfitArguments
from recipe.spiral.lab.evaluation.evaluation import Evaluation, NothingPlayed
from recipe.spiral.lab.opponents.api_player import NotAsked
from recipe.spiral.processes import launch
from tests.lab.evaluation.made_policies import composed

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


def run(tmp_path: Path, *overrides: str) -> int:
    return main_eval.run(composed(f"eval_dir={tmp_path}/evaluation", *FEW, *overrides))


def test_it_plays_and_says_how_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    said = capsys.readouterr().out
    assert "random in TicTacToe: " in said and f"results: {tmp_path}/evaluation/results.json" in said


@pytest.mark.parametrize(
    "override",
    ["games=[Chess]", "policies=[/no/such]", "games_per_role=0", "verbose=5x", "engine.secnds=1", "seed=x", "follow=3"],
)
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
        (UnfitArguments("vLLM has no nope"), 2, "spiral: vLLM has no nope"),
        (NothingPlayed("no game was played"), 1, "spiral: no game was played"),
        (NotAsked("no more"), 1, "no more; what was played is kept"),
        (KeyboardInterrupt("SIGTERM"), 130, "interrupted by SIGTERM; the same command goes on"),
        (ValueError("a bug"), 1, "ValueError: a bug"),
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
    assert run(tmp_path) == status
    assert told in capsys.readouterr().err.splitlines()[-1]
