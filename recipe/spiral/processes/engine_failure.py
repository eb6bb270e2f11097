"""An engine of vLLM's that fails. vLLM may raise no more than "see root cause above": its last lines are shown too."""

from __future__ import annotations

#: Lines, and characters of a line, that are shown.
_LINES, _LONGEST = 25, 400


class EngineFailure(RuntimeError):
    """An engine does not start, does not answer, or cannot load what it should."""


def last_lines(text: str) -> str:
    """The end of what a process printed."""
    return "\n".join(f"  {line[:_LONGEST]}" for line in text.splitlines()[-_LINES:] if line.strip())
