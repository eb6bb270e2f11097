"""What files and models say is shown so that it can neither hide a problem nor do anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.record_folder import RecordFolder
from tests.made_runs import write_run
from tests.test_foreign_folders import CONFIG

#: Clears the screen, goes up, hides, turns round, and feigns a last line.
EVIL = "\x1b[2J\x1b[1A\x9b8m\u202e\naudit: ok, 32 games"


def test_a_record_cannot_hide_a_problem_of_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", steps=2, every=1)
    (run / "config.yaml").write_text(CONFIG)
    records = RecordFolder(run / "games")
    games = list(records.read_step("train", 1))
    games[0].game, games[1].termination, games[2].discarded = EVIL, EVIL, EVIL
    games[3].turns[0].action = EVIL
    records.write("train", 1, games)
    assert audit([str(run), "--json", str(tmp_path / "audit.json")]) == 1
    said = capsys.readouterr().out + (tmp_path / "audit.json").read_text()
    assert said.replace("\n", "").isprintable()
    assert not any(line.startswith("audit: ok") for line in said.splitlines())
