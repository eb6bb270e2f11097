"""docs/configuration.md: made from the YAML files as they are, with every key of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.configuration import CONFIG, PAGE, File, page, table

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
    text = table(File(file).keys)
    shown = {key.name for key in File(file).keys if key.default}
    for name in leaves(content):
        assert any(name == key or name.startswith(f"{key}.") for key in shown), name
    assert all(f"`{key}`" in text for key in shown)


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
    assert "| `b`<br>`c` | `[1, 2]`<br>`x\\|y` | Both, in two lines. |" in table(made.keys)
    assert "| `t.key` | `null` | Of its only key. |" in table(made.keys)
