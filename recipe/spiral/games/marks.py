"""Text that covers no other: what players and strangers write."""

from __future__ import annotations

import unicodedata

#: The most marks in a row that stay on a letter: piles of marks would cover the lines around.
_MARKS = 4


def without_piles(text: str) -> str:
    """``text`` with a few marks on each letter at most."""
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        if marks <= _MARKS:
            kept.append(character)
    return "".join(kept)
