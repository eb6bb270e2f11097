"""Data of a report: scripts with one call, in which no text of a model is anything but a JSON string."""

from __future__ import annotations

import json
from pathlib import Path

from recipe.spiral.lab.report.bundle import Bundle, to_json

HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u202e\x1b[31m\x00\ud800 ' \" \\ ]]>"


def test_json_is_ascii_without_tags() -> None:
    text = to_json({"a": [HOSTILE, float("nan"), float("inf"), 1.5, None]})
    assert text.isascii() and "<" not in text and "\n" not in text
    assert json.loads(text) == {"a": [HOSTILE, None, None, 1.5, None]}


def test_a_value_is_read_again(tmp_path: Path) -> None:
    made = Bundle(tmp_path)
    made.write("deep/value", {"text": HOSTILE, "numbers": [1, 2]})
    assert made.read("deep/value") == {"text": HOSTILE, "numbers": [1, 2]}
    assert made.file("deep/value").read_text().startswith('SPIRAL.take("deep/value",')
    made.file("deep/value").write_text("torn")
    assert made.read("deep/value", "nothing") == made.read("not there", "nothing") == "nothing"


def test_a_report_has_all_pages_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    Bundle(tmp_path).begin()
    pages = {page.name: page.read_text() for page in tmp_path.glob("*.html")}
    assert set(pages) == {"index.html", "games.html", "game.html", "evaluation.html"}
    for text in pages.values():
        assert "http:" not in text and "https:" not in text and "default-src 'none'" in text
        for address in (part.split('"')[0] for part in text.split('src="')[1:]):
            assert (tmp_path / address).is_file()
    assert (tmp_path / "assets" / "plotly.min.js").stat().st_size > 1_000_000
