"""Text that a model or a stranger wrote, made harmless to look at in a terminal or on a page.

What would move the cursor, change colours, hide characters or turn their order round is written out: ``\\x1b``,
``\\u202e``. A page escapes HTML besides.
"""

from __future__ import annotations

import re
import unicodedata

from ..games.text import without_piles

#: Letters and marks for Python, and nothing to see: joiners, fillers, selectors of variants. (Not those that choose
#: between a sign and its picture.) The report's pages have the same: report/pages/base.js.
_SHOWS_NOTHING = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\U000e0100-\U000e01ef]")
#: The number of characters and of lines that are shown.
LONGEST, MOST_LINES = 20_000, 500


def visible(text: str, longest: int = LONGEST, most_lines: int = MOST_LINES) -> str:
    """``text`` as it can be shown; what is too much is left out, and its length is said."""
    lines = text[:longest].replace("\r\n", "\n").split("\n")
    left_out = max(len(text) - longest, 0) + sum(len(line) + 1 for line in lines[most_lines:])
    shown = without_piles("\n".join("".join(map(_character, line)) for line in lines[:most_lines]))
    return f"{shown} ... ({left_out} more characters)" if left_out else shown


def _character(character: str) -> str:
    if character.isprintable() and not _SHOWS_NOTHING.match(character):
        return character
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape").decode("ascii")
