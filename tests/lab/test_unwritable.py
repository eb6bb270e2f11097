"""Where nothing can be written, a command says so before its work, in one line, with status 2."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.play.__main__ import main as play


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (play, ["TicTacToe", "random", "--save", "{}"]),
        (audit, ["run", "--json", "{}"]),
    ],
    ids=["play", "audit"],
)
def test_a_command_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Any,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["main"])
    file = tmp_path / "file"
    file.write_text("")
    with patch.dict(os.environ):
        try:
            status = command([argument.format(file / "in it" / "folder") for argument in arguments])
        except SystemExit as end:  # an option's own type refuses it
            status = end.code
        assert status == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert f"{file} is no folder" in last or re.search(rf"{file}/.*: cannot be used", last)
    assert os.listdir(tmp_path) == ["file"]
