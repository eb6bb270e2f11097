"""The measurement of a start: a launch has its own marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import startup


def test_a_launch_in_a_folder_that_is_kept_finds_no_marks_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a trainer that writes nothing."""
    (tmp_path / "train.log").write_text("training for 1 step\nstep  1/1\n")
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nsleep 0.5\n")
    program.chmod(0o755)
    monkeypatch.setattr(startup.sys, "executable", str(program))
    assert startup.launch([], tmp_path)["seconds"].keys() == {"end"}
