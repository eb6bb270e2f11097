"""Free text between players: what is passed on, and how it is shown.

A message must not look like the game's own words or like a chat template's tokens to its reader. So it is one line of
plain characters in quotes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

#: The number of characters of a message that are passed on.
LONGEST_MESSAGE = 200
#: Brackets would look like actions, "<|...|>" like a tokenizer's special tokens, quotes like the end of the message.
_REMOVED = str.maketrans({**dict.fromkeys("[]{}<>|\\`"), "\u201c": "'", "\u201d": "'", '"': "'"})


def message(text: str) -> str:
    """``text`` as one line of at most ``LONGEST_MESSAGE`` plain characters; "" if there are none."""
    text = unicodedata.normalize("NFKC", text[: 4 * LONGEST_MESSAGE])  # cut first: NFKC is not linear
    text = "".join(character if character.isprintable() else " " for character in text)
    # Once more, because characters that combine may have been separated by removed ones.
    text = " ".join(unicodedata.normalize("NFKC", text.translate(_REMOVED)).split())
    return text[:LONGEST_MESSAGE].rstrip()


def talk(lines: Iterable[tuple[int, str]], player: int) -> list[str]:
    """The messages ``(speaker, words)`` as ``player`` sees them: 'You: words', 'Opponent: words'."""
    shown = [f"{'You' if speaker == player else 'Opponent'}: {words}" for speaker, words in lines]
    return shown or ["Nothing has been said."]
