"""By which code a result came about."""

from __future__ import annotations

import subprocess
from pathlib import Path

from experiments.commits import commit, note, noted


def test_the_commit_says_whether_the_code_was_changed(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    code = tmp_path / "recipe" / "code.py"
    code.parent.mkdir()
    code.write_text("a = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(tmp_path)
    assert len(clean) == 12
    (tmp_path / "notes").touch()
    assert commit(tmp_path) == clean
    code.write_text("a = 2\n")
    assert commit(tmp_path) == f"{clean}-modified"
    git("commit", "-am", "second")
    preset = tmp_path / "config" / "experiment" / "kuhn.yaml"
    preset.parent.mkdir(parents=True)
    preset.touch()
    assert commit(tmp_path).endswith("-modified") and commit(tmp_path) != f"{clean}-modified"


def test_every_folder_has_the_commits_that_worked_there(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    for now, at_work in (("1", folders[:2]), ("1", folders[:1]), ("2", folders[1:2])):
        for folder in at_work:
            note(folder, now)
    assert noted(folders[:1]) == ["1"], "not what worked beside it"
    assert noted(folders) == ["1", "2", "unknown"]
    note(folders[1], "3", anew=True)
    assert noted(folders[1:2]) == ["3"]
