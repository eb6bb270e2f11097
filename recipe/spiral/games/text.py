"""Free text between players: what may pass, and how it is shown.

A message is data to its reader. It is one line of plain characters in quotes, so that it can look neither like the
game's own words nor like a chat template's tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

#: The longest message that is passed on, in characters; the rest is not.
LONGEST_MESSAGE = 200
#: Brackets would look like actions, "<|...|>" like a tokenizer's special tokens, quotes like the end of the message.
_REMOVED = str.maketrans({**dict.fromkeys("[]{}<>|\\`"), "\u201c": "'", "\u201d": "'", '"': "'"})


def message(text: str) -> str:
    """``text`` as one line of at most ``LONGEST_MESSAGE`` plain characters; "" if none is left."""
    text = unicodedata.normalize("NFKC", text[: 4 * LONGEST_MESSAGE])  # cut first: NFKC is not linear
    text = "".join(character if character.isprintable() else " " for character in text)
    # Once more, because what was taken out may have kept two characters apart that combine.
    text = " ".join(unicodedata.normalize("NFKC", text.translate(_REMOVED)).split())
    return text[:LONGEST_MESSAGE].rstrip()


def talk(lines: Iterable[tuple[int, str]], player: int) -> list[str]:
    """Who said what, as ``player`` sees it: ``(speaker, words)`` -> 'You: words', 'Opponent: words'."""
    return [f"{'You' if speaker == player else 'Opponent'}: {words}" for speaker, words in lines]
