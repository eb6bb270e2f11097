"""docs/licences.md: made from the lock as it is, which has no package under the GPL."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError

import pytest

from docs.licences import CONDITIONS, PAGE, licence, locked, page


def test_the_page_is_current() -> None:
    try:
        text = page()
    except PackageNotFoundError as missing:
        pytest.skip(f"not the environment of the lock: {missing}")
    assert PAGE.read_text(encoding="utf-8") == text, "run python docs/licences.py"


def test_the_lock_has_no_package_under_the_gpl() -> None:
    """It would come into every environment: TextArena asks for one, which its games do not need."""
    assert "chess" not in locked()
    rows = PAGE.read_text(encoding="utf-8").split("## ")[1]
    assert not re.search(r"\| A?GPL|(?<!Lesser )General Public", rows)


def test_every_package_is_there_once() -> None:
    named = re.findall(r"(?m)^\| ([\w.-]+) \| (?!licence|---)", text := PAGE.read_text(encoding="utf-8"))
    named += [name for names in re.findall(r"(?m)^- .*?: (.*)$", text) for name in names.split(", ")]
    assert sorted(named) == sorted(locked())


def test_what_has_conditions_stands_apart() -> None:
    assert CONDITIONS.search(licence("tqdm")) and not CONDITIONS.search(licence("pytest"))
