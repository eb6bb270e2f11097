"""Data of a report: scripts with one call, in which no text of a model is anything but a JSON string."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from recipe.spiral.lab.report import bundle
from recipe.spiral.lab.report.bundle import Bundle, NoCharts, to_json

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


def test_a_packed_value_is_gzip_in_base64(tmp_path: Path) -> None:
    made = Bundle(tmp_path)
    made.write_packed("games/x", to_json([HOSTILE]))
    packed = made.read("games/x")
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == [HOSTILE]


def test_a_report_has_all_pages_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    Bundle(tmp_path).begin()
    pages = {page.name: page.read_text() for page in tmp_path.glob("*.html")}
    assert set(pages) == {"index.html", "games.html", "game.html", "evaluation.html"}
    for text in pages.values():
        assert "http:" not in text and "https:" not in text and "default-src 'none'" in text
        for address in (part.split('"')[0] for part in text.split('src="')[1:]):
            assert (tmp_path / address).is_file()
    assert (tmp_path / "assets" / "plotly.min.js").stat().st_size > 1_000_000


def test_pages_put_no_text_on_the_screen_as_html() -> None:
    for file in bundle._PAGES.glob("*.js"):
        text = file.read_text()
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "fetch(",
        ):
            assert way not in text, f"{file.name}: {way}"


def test_without_plotly_the_way_to_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)
    with pytest.raises(NoCharts, match=r"pip install plotly"):
        Bundle(tmp_path).begin()
