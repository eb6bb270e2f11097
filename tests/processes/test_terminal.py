"""What reaches the console: a command's own lines, made harmless, and nothing that libraries log."""

from __future__ import annotations

import pytest

from recipe.spiral.processes.terminal import fail


def test_what_strangers_wrote_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("it says\n\x1b]0;title\x07", 1) == 1
    assert capsys.readouterr() == ("", "spiral: it says \\x1b]0;title\\x07\n")
