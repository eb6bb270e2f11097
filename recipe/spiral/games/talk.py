"""Free text between players: what is passed on, how it is shown, and the base class of games with it.

A message must not look like the game's own words or like a chat template's tokens to its reader. So it is one line of
plain characters in quotes. It is bounded in bytes, because a tokenizer that does not know a script makes a token of
each byte: 200 characters may be 800 tokens, 200 bytes are 200 at most.
"""

from __future__ import annotations

import unicodedata

from .base import Game

#: The number of bytes of a message, in UTF-8, that are passed on. English has as many characters, Thai a third.
LONGEST_MESSAGE = 200
#: How a game says so to its players.
MESSAGE = f"a message of up to {LONGEST_MESSAGE} bytes of UTF-8"
#: Brackets would look like actions, "<|...|>" like a tokenizer's special tokens, quotes like the end of the message.
_REMOVED = str.maketrans({**dict.fromkeys("[]{}<>|\\`"), "\u201c": "'", "\u201d": "'", '"': "'"})


def message(text: str) -> str:
    """``text`` as one line of at most ``LONGEST_MESSAGE`` bytes of plain characters; "" if there are none."""
    text = unicodedata.normalize("NFKC", text[: 4 * LONGEST_MESSAGE])  # cut first: NFKC is not linear
    text = "".join(character if character.isprintable() else " " for character in text)
    # Once more, because characters that combine may have been separated by removed ones.
    text = " ".join(unicodedata.normalize("NFKC", text.translate(_REMOVED)).split())
    return text.encode()[:LONGEST_MESSAGE].decode(errors="ignore").rstrip()


class TalkGame(Game):
    """The players write messages in turn: at most ``turns`` of them, an even number."""

    def __init__(self, seed: int, turns: int) -> None:
        super().__init__(seed)
        self.max_turns = turns
        self.history: list[tuple[int, str]] = []  # who said what, as both see it

    @property
    def current_player(self) -> int:
        return len(self.history) % 2

    @property
    def is_terminal(self) -> bool:
        return len(self.history) >= self.max_turns

    def parse(self, text: str) -> str | None:
        return message(text) or None

    def say(self, words: str) -> None:
        """Pass on a message of the player to move."""
        self.history.append((self.current_player, f'"{words}"'))

    def talk(self, player: int) -> list[str]:
        """The messages as ``player`` sees them: 'You: "..."', 'Opponent: "..."'."""
        shown = [f"{'You' if speaker == player else 'Opponent'}: {words}" for speaker, words in self.history]
        return shown or ["Nothing has been said."]

    def show(self, state: str) -> str:
        """For ``render``: the state in words, and all messages."""
        return "\n".join([state, *(f"Player {player}: {words}" for player, words in self.history)])
