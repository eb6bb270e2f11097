"""docs/configuration.md: made from the YAML files as they are, with every key of them that people set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.configuration import CONFIG, MACHINES, PAGE, File, entries, page

FILES = sorted(file for file in CONFIG.rglob("*.yaml") if file.parent.name not in ("experiment", "sweep"))


def leaves(value: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of a file's keys, as PyYAML reads them: down to what the page shows as one value."""
    for name, inner in value.items():
        yield from leaves(inner, f"{prefix}{name}.") if isinstance(inner, dict) and inner else [f"{prefix}{name}"]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python docs/configuration.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIG)))
def test_every_key_is_there(file: Path) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    if isinstance(content, list):
        return
    content.pop("defaults", None)
    keys = {key.name: key for key in File(file).keys if key.default}
    for name in leaves(content):
        assert any(name == key or name.startswith(f"{key}.") for key in keys), name
    text = PAGE.read_text(encoding="utf-8")
    if file.parent.name in MACHINES:
        assert f"`{file.relative_to(CONFIG.parents[2])}`" in text
        return
    for key in keys.values():
        shown = f"`{key.name.split('.')[-1]}`" if key.name.startswith("environment.") else key.shown
        assert key.wiring or shown in text, key.name


def test_keys_that_nobody_sets_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(
        "# The file.\n\n# Of use.\na: 1\n\n# It follows from a. Do not set it.\nb: ${a}\n\n# Set a.b instead.\nc: 1\n\n"
        "# A class.\nd: recipe.spiral.D\n\n# Computed.\ne: ${spiral_tokens:1}\n\nhydra:\n\n  # A name.\n  f: 1\n"
    )
    assert entries(File(file).keys) == "- `a=1`: Of use.\n- `e`: Computed."


def test_comments_belong_to_the_keys_below_them(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(
        "# The file.\na: 1\n\n# Both,\n# in two lines.\nb: [1, 2]\nc: x|y\n\n# A section.\ns:\n\n  first: 1\n\n"
        "  # Of second.\n  second: ${a}\n\n# Of its only key.\nt:\n  key: null\n\nu: {v: 1}\n"
    )
    made = File(file)
    assert made.header == "The file."
    assert [(key.name, key.default, key.comment.text) for key in made.keys] == [
        ("a", "1", ""),
        ("b", "[1, 2]", "Both, in two lines."),
        ("c", "x|y", "Both, in two lines."),
        ("s", "", "A section."),
        ("s.first", "1", ""),
        ("s.second", "${a}", "Of second."),
        ("t", "", "Of its only key."),
        ("t.key", "null", "Of its only key."),
        ("u", "{v: 1}", ""),
    ]
    assert "- `b=[1,2]`, `c=x|y`: Both, in two lines.\n" in entries(made.keys)
    assert "- `t.key=null`: Of its only key.\n" in entries(made.keys)
