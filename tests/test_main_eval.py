"""The entry of evaluations: exit statuses and last lines. What it plays is tested in ``evaluation/test_running``."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation import command as main_eval
from recipe.spiral.lab.evaluation.evaluation import Evaluation
from recipe.spiral.lab.evaluation.policies.evaluation_engine import UnfitArguments
from recipe.spiral.lab.evaluation.settings import NothingPlayed
from recipe.spiral.lab.opponents.api.endpoint_player import BudgetSpent
from recipe.spiral.processes import launch
from recipe.spiral.processes.engine_failure import EngineFailure
from tests.lab.evaluation.made_policies import composed

FEW = ["policies=[random]", "opponents=[perfect]", "games_per_role=2", "games=[TicTacToe]"]
FEW += ["exploitability.games=[]", "optimality.games=[]"]


@pytest.fixture(autouse=True)
def nothing_else_is_ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is pytest's: its children and signals are left alone."""

    @contextmanager
    def clean_run(folder: Path, setting: str) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        with launch.only_one(folder, setting):
            yield

    monkeypatch.setattr(launch, "clean_run", clean_run)
    monkeypatch.setattr(launch, "set_environment", lambda variables: None)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def run(tmp_path: Path, *overrides: str) -> int:
    return main_eval.run(composed(f"eval_dir={tmp_path}/evaluation", *FEW, *overrides))


def test_it_plays_and_says_where_the_results_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().addHandler(shown := logging.StreamHandler())  # as Hydra's
    assert run(tmp_path) == 0
    logging.getLogger().removeHandler(shown)
    assert shown.level == logging.WARNING
    said = capsys.readouterr().out
    assert "random  perfect" in said and f"results: {tmp_path}/evaluation/results.json" in said


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("games=[Chess]", "unknown game"),
        ("policies=[/no/such]", "there is no such folder"),
        ("games_per_role=0", "games_per_role=0"),
        ("verbose=5x", "verbose='5x': must be a valid boolean"),
        ("engine.seconds=-1", "engine.seconds"),
        ("benchmarks.names=[chess]", "chess"),
    ],
)
def test_a_bad_config_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, told: str) -> None:
    assert run(tmp_path, override) == 2
    last = capsys.readouterr().err.splitlines()
    assert len(last) == 1 and told in last[0]


def test_a_folder_in_use_is_named_by_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    child = (
        "import sys; from pathlib import Path; from recipe.spiral.processes.launch import only_one\n"
        "with only_one(Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", child, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        assert run(tmp_path) == 2
        assert process.stdin is not None
        process.stdin.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spiral: eval_dir={folder}: process {process.pid} ") and line.endswith("another eval_dir")


def test_another_evaluations_folder_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    assert run(tmp_path, "seed=1") == 2
    assert "seed: 0 there, 1 now" in capsys.readouterr().err


def test_a_damaged_database_is_status_2_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    file = tmp_path / "evaluation" / "evaluation.sqlite"
    whole = file.read_bytes()
    damages = {
        whole.replace(b'"rules"', b'"RULES"'): "row 1 of the table",
        whole[:-5000]: "SQLite cannot use this file",
    }
    for damaged, message in damages.items():
        file.write_bytes(damaged)
        capsys.readouterr()
        assert run(tmp_path) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (
            EngineFailure("vLLM's processes ended"),
            1,
            "what was played is kept, and once that is mended another start goes on",
        ),
        (OSError(28, "No space left on device", "/f"), 1, "No space left on device: '/f'; what was played is kept"),
        (UnfitArguments("vLLM has no nope"), 2, "spiral: vLLM has no nope"),
        (NothingPlayed("no game was played"), 1, "spiral: no game was played"),
        (BudgetSpent("no more"), 1, "no more; what was played is kept"),
        (KeyboardInterrupt("Ctrl-C"), 130, "interrupted by Ctrl-C; the same command goes on"),
        (KeyboardInterrupt("SIGTERM"), 130, "interrupted by SIGTERM"),
        (ValueError("a bug"), 1, "ValueError: a bug"),
        (RuntimeError("another"), 1, "RuntimeError: another"),
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
