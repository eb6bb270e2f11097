"""Where nothing can be written, a command says so before its work, in one line, with status 2."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from recipe.spiral.lab.play.__main__ import main as play


def test_play_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["main"])
    file = tmp_path / "file"
    file.write_text("")
    with patch.dict(os.environ):
        try:
            status: object = play(["TicTacToe", "random", "--save", str(file / "in it" / "folder")])
        except SystemExit as end:  # an option's own type refuses it
            status = end.code
        assert status == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert f"{file} is no folder" in last or re.search(rf"{file}/.*: cannot be used", last)
    assert os.listdir(tmp_path) == ["file"]
