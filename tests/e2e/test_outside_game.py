"""A game of a user's own package: trained, validated, recorded and audited, from the folder where the package lies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from tests.games.playouts import PENNIES

from .conftest import Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
PENNY = "mine.pennies:Pennies"


def test_a_users_game_is_trained_and_audited(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pennies.py").write_text(PENNIES, encoding="utf-8")
    short = ["trainer.total_training_steps=2", "trainer.test_freq=2"]
    run = Run(tmp_path / "run", *small(model, *short), f"games=[{PENNY}]", cwd=tmp_path)
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    folder = RecordFolder(tmp_path / "run" / "games")
    trained, validated = list(folder.read("train")), list(folder.read("val"))
    assert {record.game for record in (*trained, *validated)} == {PENNY} and len(trained) == 32
    assert {record.opponent for record in validated} == {"random"}
    metrics = {
        name
        for file in tmp_path.glob("run/metrics-*.jsonl")
        for line in file.read_text().splitlines()
        for name in json.loads(line)["data"]
    }
    assert {name.split("/")[1] for name in metrics if name.startswith("games/") and "/p0/" in name} == {PENNY}
    audit = [sys.executable, "-m", "recipe.spiral.audit", str(tmp_path / "run")]
    ran = subprocess.run(audit, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 and PENNY in ran.stdout, ran.stdout + ran.stderr
