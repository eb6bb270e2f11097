"""Free text between players: what is passed on, and how it is shown.

A message must not look like the game's own words or like a chat template's tokens to its reader. So it is one line of
plain characters in quotes. It is bounded in bytes, because a tokenizer that does not know a script makes a token of
each byte: 200 characters may be 800 tokens, 200 bytes are 200 at most.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

#: The number of bytes of a message, in UTF-8, that are passed on. English has as many characters, Thai a third.
LONGEST_MESSAGE = 200
#: How a game says so to its players.
MESSAGE = f"a message of up to {LONGEST_MESSAGE} bytes of UTF-8"
#: Brackets would look like actions, "<|...|>" like a tokenizer's special tokens, quotes like the end of the message.
_REMOVED = str.maketrans({**dict.fromkeys("[]{}<>|\\`"), "\u201c": "'", "\u201d": "'", '"': "'"})
#: The most marks in a row that stay on a letter: piles of them would cover the lines around the message.
_MARKS = 4


def message(text: str) -> str:
    """``text`` as one line of at most ``LONGEST_MESSAGE`` bytes of plain characters; "" if there are none."""
    text = unicodedata.normalize("NFKC", text[: 4 * LONGEST_MESSAGE])  # cut first: NFKC is not linear
    text = "".join(character if character.isprintable() else " " for character in text)
    # Once more, because characters that combine may have been separated by removed ones.
    text = " ".join(without_piles(unicodedata.normalize("NFKC", text.translate(_REMOVED))).split())
    return text.encode()[:LONGEST_MESSAGE].decode(errors="ignore").rstrip()


def without_piles(text: str) -> str:
    """``text`` with a few marks on each letter at most."""
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        if marks <= _MARKS:
            kept.append(character)
    return "".join(kept)


def talk(lines: Iterable[tuple[int, str]], player: int) -> list[str]:
    """The messages ``(speaker, words)`` as ``player`` sees them: 'You: words', 'Opponent: words'."""
    shown = [f"{'You' if speaker == player else 'Opponent'}: {words}" for speaker, words in lines]
    return shown or ["Nothing has been said."]
