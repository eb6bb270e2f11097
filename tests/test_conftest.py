"""What a killed session of these tests left is cleaned up by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import clean_up_after_killed


def test_only_what_a_dead_session_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name, owner in (("killed", dead.pid), ("at-work", os.getpid()), ("ended", None)):
        (tmp_path / f"pytest-{name}").mkdir()
        if owner is not None:
            (tmp_path / f"pytest-{name}" / ".lock").write_text(str(owner))
    clean_up_after_killed(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["pytest-at-work", "pytest-ended"]
