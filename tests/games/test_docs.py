"""The documentation of the games: what docs/adding_a_game.md says is done here, and the tables name every game."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import known_games
from recipe.spiral.games.registry import _ALIASES
from tests.games.playouts import needs_words

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(language: str) -> list[str]:
    """The page's blocks of code in their order."""
    page = (DOCS / "adding_a_game.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run(command: str, cwd: Path, **environment: str) -> str:
    """What a command of the page prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, **environment},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the page's example in the file that the page names."""
    file = tmp_path / "games" / "my_games" / "undercut.py"
    file.parent.mkdir(parents=True)
    file.write_text(blocks("python")[0], encoding="utf-8")
    return tmp_path


def test_the_example_is_in_order_for_ruff(home: Path) -> None:
    file = f"games/my_games/undercut.py --config {ROOT / 'pyproject.toml'}"
    run(f"ruff check {file} && ruff format --check {file}", home)


def test_the_commands_of_the_check_work(home: Path) -> None:
    said = run(blocks("bash")[0], ROOT, HOME=str(home), PYTHONPATH=str(ROOT))
    assert "my_games.undercut:Undercut: in order, in 100 random games\n" in said
    assert said.count("| my_games.undercut:Undercut |") == 2, "fairness and tokens"


def test_a_variant_is_a_game_of_its_own(home: Path) -> None:
    file = home / "games" / "my_games" / "undercut.py"
    file.write_text("\n\n".join(blocks("python")[:2]), encoding="utf-8")
    check = "python -m recipe.spiral.games.check my_games.undercut:LongUndercut --games 5"
    assert "in order" in run(check, ROOT, PYTHONPATH=f"{file.parents[1]}:{ROOT}")


@needs_words
@pytest.mark.full
def test_the_example_in_the_repository_is_tested_with_the_others(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    for name in ("recipe", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.copy(home / "games" / "my_games" / "undercut.py", copy / "recipe" / "spiral" / "games")
    registry = copy / "recipe" / "spiral" / "games" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace("_GAMES = {\n", "_GAMES = {\n" + blocks("python")[2], 1), encoding="utf-8")
    said = run(f"{blocks('bash')[2]}", copy, PYTHONPATH=str(copy))
    assert re.search(r"\d+ passed", said) and "failed" not in said


def test_the_example_is_scored_as_it_says() -> None:
    scope: dict[str, Any] = {}
    exec(blocks("python")[0], scope)
    game = scope["Undercut"](0, rounds=1)
    assert game.parse("5.") == "[5]"
    prize = game.prize
    for action in ("[5]", "[4]"):
        game.step(action)
    assert game.scores == [0, 9 * prize] and game.rewards() == (-1.0, 1.0)


def test_the_tables_name_every_game_and_alias() -> None:
    text = (DOCS / "games.md").read_text(encoding="utf-8")
    missing = [name for name in (*known_games(), *_ALIASES) if f"`{name}`" not in text]
    assert not missing
    for game_id in known_games():
        rows = re.findall(rf"(?m)^{game_id} +[\d.]+ ", text)
        assert len(rows) == 1, f"{game_id}: fairness, tokens and speed"
