"""The tiny model that comes with the recipe: it is what the factory makes, and it is taken where it is made for."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.models import embedded, tiny
from recipe.spiral.lab.models.provided import is_intact
from recipe.spiral.lab.models.read_back import hold_out, random_play
from recipe.spiral.lab.models.warm_start import Criteria
from recipe.spiral.players.prompts import get_template
from recipe.spiral.storage.manifest import MANIFEST

FOLDER = tiny.SHIPPED / tiny.Spec().name


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tiny.Spec]:
    """What the factory is asked to make; it makes an empty folder, in a cache of the test's."""
    specs: list[tiny.Spec] = []
    monkeypatch.setattr(tiny, "build", lambda spec, *_: specs.append(spec))
    monkeypatch.setenv("SPIRAL_CACHE", str(tmp_path / "cache"))
    return specs


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the shipped model, which is taken instead of it."""
    shutil.copytree(tiny.SHIPPED, tmp_path / "shipped")
    monkeypatch.setattr(tiny, "SHIPPED", tmp_path / "shipped")
    return tmp_path / "shipped" / FOLDER.name


def test_it_is_the_factorys_for_todays_texts_and_settings() -> None:
    """Fails where a game's text, a template or the schedule has changed: make it again (shipped/README.md)."""
    assert FOLDER.is_dir() and [folder for folder in tiny.SHIPPED.iterdir() if folder.is_dir()] == [FOLDER]
    assert FOLDER.name in (tiny.SHIPPED / "README.md").read_text()


def test_its_manifest_names_every_file_and_its_hash() -> None:
    manifest = json.loads((FOLDER / MANIFEST).read_text())
    assert manifest.keys() == {file.name for file in FOLDER.iterdir()} - {MANIFEST}
    assert is_intact(FOLDER)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 4.5e6


def test_its_figures_meet_the_criteria() -> None:
    figures = json.loads((FOLDER / tiny.FIGURES).read_text())
    assert figures["missed"] == [] == Criteria().missed(figures)
    assert figures["spec"]["games"] == sorted(tiny.DEFAULT_GAMES)
    assert figures["in_play"].keys() == set(tiny.DEFAULT_GAMES)


def test_it_reads_and_plays_as_its_figures_say() -> None:
    """At all positions of Kuhn poker, and at some of TicTacToe that were held out when it was made."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from recipe.spiral.lab.models.forest import probabilities
    from recipe.spiral.lab.models.measure import Reader

    files = {file: file.stat().st_mtime_ns for file in FOLDER.iterdir()}
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER).eval()
    assert model.dtype == torch.float32
    reader = Reader(model, transformers.AutoTokenizer.from_pretrained(FOLDER), get_template("chat"))
    _, held_out = hold_out(random_play("TicTacToe", tiny.POSITION_GAMES, 0), tiny.HELD_OUT)
    positions = random_play("KuhnPoker", 300, 0) + held_out[:20]
    assert min(reader.legal(positions).values()) >= 0.97
    assert min(reader.read_back(positions).values()) >= 0.97
    moves = [reader.moves(position) for position in positions]
    for shares in (values for values in probabilities(model, moves) if len(values) > 1):
        assert max(shares) < 2.5 * min(shares), "it plays at random"
    assert {file: file.stat().st_mtime_ns for file in FOLDER.iterdir()} == files, "nothing is written into the folder"


@pytest.mark.parametrize("games", [["TicTacToe", "KuhnPoker"], ["KuhnPoker", "KuhnPoker"], ["TicTacToe"]])
def test_it_serves_for_the_games_it_is_made_for(games: list[str], made: list[tiny.Spec]) -> None:
    assert embedded("tiny", games, "chat") == FOLDER
    assert made == []


@pytest.mark.parametrize(
    ("name", "games", "template"),
    [
        ("tiny", ["KuhnPoker-5"], "chat"),
        ("tiny", ["TicTacToe", "KuhnPoker", "KuhnPoker-5"], "chat"),
        ("tiny", ["KuhnPoker"], "qwen3"),
        ("tiny_lines", ["TicTacToe"], "chat"),
    ],
)
def test_others_are_made_here(
    name: str, games: list[str], template: str, made: list[tiny.Spec], tmp_path: Path
) -> None:
    folder = embedded(name, games, template)
    assert folder.parent == tmp_path / "cache"
    assert [(set(spec.games), spec.template, spec.lines) for spec in made] == [
        (set(games), template, name == "tiny_lines")
    ]


def test_other_settings_or_force_are_made_here(made: list[tiny.Spec]) -> None:
    tiny.ensure(seed=1)
    tiny.ensure(layers=3)
    tiny.ensure(force=True)
    assert made == [replace(tiny.Spec(), seed=1), replace(tiny.Spec(), layers=3), tiny.Spec()]


def test_a_damaged_one_is_made_anew(
    copied: Path,
    made: list[tiny.Spec],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("recipe.spiral.lab.models", "recipe.spiral.lab.models.tiny", "recipe.spiral.storage.cache"):
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)  # libraries that set logging up disable loggers
    assert embedded("tiny", ["KuhnPoker"], "chat") == copied
    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copied / "model.safetensors").write_bytes(weights)
    with caplog.at_level(logging.WARNING):
        assert embedded("tiny", ["KuhnPoker"], "chat").parent == tmp_path / "cache"
    assert made == [tiny.Spec(("KuhnPoker",))] and "damaged" in caplog.text


def test_one_that_was_left_out_is_made(copied: Path, made: list[tiny.Spec], tmp_path: Path) -> None:
    shutil.rmtree(copied.parent)
    assert embedded("tiny", ["TicTacToe", "KuhnPoker"], "chat").parent == tmp_path / "cache"
    assert made == [tiny.Spec()]
