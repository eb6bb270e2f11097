"""A folder that somebody else has made is data: reading it runs no code that it names."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.export.source import Source
from recipe.spiral.export.writing import continuation
from recipe.spiral.games import outside
from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.evaluation.policies.policy_weights import run_of
from recipe.spiral.lab.report.__main__ import main as report
from recipe.spiral.lab.report.bundle import Bundle
from recipe.spiral.storage.record_folder import RecordFolder
from tests.games.own import PENNIES
from tests.lab.audit.test_audit import config
from tests.made_runs import write_run

GAME = "outputs.code:Pennies"
RAN = "code_ran"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, as with ``python -m``, with a run below it whose records and config name a module in
    it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    run = write_run(tmp_path / "outputs" / "run", steps=2, every=1)
    (tmp_path / "outputs" / "code.py").write_text(f"open({RAN!r}, 'w').close()\n{PENNIES}")
    package = tmp_path / "evil.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{outside.GROUP}]\nNim2 = {GAME}\n")
    records = RecordFolder(run / "games")
    for split, step in (("train", 1), ("val", 1)):
        games = list(records.read_step(split, step))
        for number, game in enumerate(games):
            game.game = (GAME, "Nim2", game.game)[number % 3]
        records.write(split, step, games)
    outside.installed.cache_clear()
    yield tmp_path
    outside.game_class.cache_clear()
    outside.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "outputs"]:
        del sys.modules[name]


def write_config(place: Path, **changes: Any) -> None:
    from omegaconf import OmegaConf

    settings = config(**changes)
    settings.games = [{"id": GAME, "template": "qwen3"}, "KuhnPoker"]
    OmegaConf.save(settings, place / "outputs" / "run" / "config.yaml")


def test_the_report_names_a_folders_own_games_and_runs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([str(place / "outputs" / "run"), "--out", "pages"]) == 0
    assert not (place / RAN).exists()
    line = f"12 games of {GAME} have no boards: a folder's own code is not imported; if you trust it, allow the game "
    assert f"{line}by --game {GAME}\n" in capsys.readouterr().err
    run = Bundle(place / "pages").read("run")
    assert run["games"]["train"] == 2 * 16 and run["notes"] == [f"{line}by --game {GAME}"]
    assert report([str(place / "outputs" / "run"), "--out", "pages", "--game", GAME]) == 0
    assert (place / RAN).exists() and not capsys.readouterr().err


def test_the_audit_counts_a_folders_own_games_and_runs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(place)
    audit([str(place / "outputs" / "run"), "--json", "audit.json"])
    assert not (place / RAN).exists()
    found = json.loads((place / "audit.json").read_text())
    assert {game: count for game, count in found["not_replayed"].items() if GAME in game} == {
        f"{GAME}: a folder's own code is not imported; if you trust it, allow the game by --game {GAME}": 6
    }
    audit([str(place / "outputs" / "run"), "--game", GAME])
    assert (place / RAN).exists()


def test_export_and_evaluation_take_what_a_config_says_of_a_game_and_run_none(place: Path) -> None:
    write_config(place)
    run = run_of(place / "outputs" / "run")
    assert run.by_game == {GAME: {"template": "qwen3"}}
    from omegaconf import OmegaConf

    from recipe.spiral.lab.models import embedded

    source = Source(place, 1, 1, "run", OmegaConf.create({"games": [GAME], "prompt": {"template": "spiral_tiny"}}))
    folder = embedded("tiny", games=["KuhnPoker"], template="chat")
    assert continuation(None, folder, source).endswith(f"allow the game by --game {GAME}")
    assert not (place / RAN).exists()


def test_a_name_in_the_working_directory_is_no_installed_packages(place: Path) -> None:
    assert "Nim2" not in outside.installed()
