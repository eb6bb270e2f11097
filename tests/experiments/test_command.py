"""An experiment's command: what is wrong costs a line before any work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.command import Failed, run_experiment
from experiments.result import BadResult

#: Ends an experiment on learning with these arguments, whose run raises an error: the exit status and the only line.
Ended = Callable[..., tuple[int, str]]


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    def end(arguments: list[str], error: type[BaseException] | None = None) -> tuple[int, str]:
        def run(settings: dict[str, Any], overrides: list[str]) -> Any:
            assert error is not None, "it starts"
            raise error("why")

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["learning", *arguments])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        with pytest.raises(SystemExit) as exited:
            run_experiment("learning", run)
        [line] = capsys.readouterr().err.splitlines()
        return int(str(exited.value.code)), line

    return end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing mandatory value: name; an experiment is named by -cn: asynchronous, "),
        (["-cn", "nope"], "Cannot find primary config 'nope'."),
        (["-cn", "kuhn", "stepps=3"], "stepps: there is no such setting; there are arms, every, "),
        (["-cn", "kuhn", "+stepps=3"], "stepps: there is no such setting; there are arms, every, "),
        (["-cn", "kuhn", "seeds=[1"], "no viable alternative at input '[1'"),
        (["-cn", "kuhn", "work={}/file"], "{}/file: cannot be used (File exists)"),
        (["-cn", "kuhn", "output={}/file"], "output={}/file: {}/file is no folder"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(tmp_path: Path, ended: Ended, arguments: list[str], said: str) -> None:
    (tmp_path / "file").write_text("")
    status, line = ended([argument.format(tmp_path) for argument in arguments])
    assert status == 2 and line.startswith(f"spiral: {said.replace('{}', str(tmp_path))}")


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, 2), (BadResult, 1), (Failed, 1), (ImportError, 1), (KeyboardInterrupt, 130)],
    ids=str,
)
def test_how_it_ends(tmp_path: Path, ended: Ended, error: type[BaseException], status: int) -> None:
    assert ended(["-cn", "kuhn", f"work={tmp_path}"], error)[0] == status
