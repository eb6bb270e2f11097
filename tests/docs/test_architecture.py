"""The page that leads through the code names files that are there, and a turn's way is as short as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
RECIPE = ROOT / "recipe" / "spiral"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[\w/]+\.py\b", PAGE))))
def test_a_file_that_is_named_is_there(name: str) -> None:
    assert (ROOT / name if name.startswith("tests/") else RECIPE / name).is_file()


def test_a_turns_way_takes_fifteen_files_at_most() -> None:
    way = PAGE.split("## The way of a turn")[1].split("```")[1]
    assert 10 <= len(re.findall(r"[\w/]+\.py\b", way)) <= 15


def test_every_room_of_the_core_is_in_the_picture() -> None:
    rooms = {path.name for path in RECIPE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert {room for room in rooms if room not in PAGE} <= {"extras", "__pycache__"}


def test_the_page_is_two_pages_at_most() -> None:
    assert len(PAGE.split()) <= 900
