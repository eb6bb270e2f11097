"""What reaches the console: a command's own lines, made harmless, and nothing that libraries log."""

from __future__ import annotations

import logging

import pytest

from recipe.spiral.processes.terminal import fail, quiet_logging


def test_what_strangers_wrote_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("it says\n\x1b]0;title\x07", 1) == 1
    assert capsys.readouterr() == ("", "spiral: it says \\x1b]0;title\\x07\n")


def test_warnings_are_logged_and_chatter_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under Hydra, whose console handler shows everything."""
    console, root = logging.StreamHandler(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [console])
    quiet_logging()
    assert console.level == logging.WARNING
    assert not logging.getLogger("ray._private.authentication.authentication_token_setup").isEnabledFor(logging.WARNING)
