"""What strangers wrote can do nothing to a terminal, and cannot fill it."""

import pytest

from recipe.spiral.processes.terminal import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plain line", "a plain line"),
        ("two\nlines", "two\nlines"),
        ("dos\r\nlines", "dos\nlines"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten", "over\\rwritten"),
        ("back\b\b\x7f", "back\\x08\\x08\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("right\u202eto left\u2066\u200f", "right\\u202eto left\\u2066\\u200f"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tags\U000e0041\u034f\u115f\u3164", "tags\\U000e0041\\u034f\\u115f\\u3164"),
        ("selected\U000e0100 \u2764\ufe0f", "selected\\U000e0100 \u2764\ufe0f"),
        ("tab\tand\u00a0space", "tab and space"),
        ("\ud800 half a letter", "\\ud800 half a letter"),
        ("naïve 東京 🎲", "naïve 東京 🎲"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
