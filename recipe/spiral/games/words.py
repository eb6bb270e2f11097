"""English words, and the base class of word games.

The word list is a file in the package ``pyspellchecker`` (MIT): 128,000 words with their counts in film subtitles,
including inflected forms and some names. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

from ..extras import install
from .base import Game, IllegalAction, normalise, win

GIVE_UP = "[give up]"


@cache
def word_counts() -> dict[str, int]:
    """Every word of at least two letters from a to z -> its count; an ``ImportError`` if the list is not there."""
    try:
        file = importlib.resources.files("spellchecker") / "resources" / "en.json.gz"
        counts = json.loads(gzip.decompress(file.read_bytes()))
    except (ImportError, FileNotFoundError) as error:
        raise ImportError(f"the games with words need a word list: {install('words')}") from error
    return {word: count for word, count in counts.items() if len(word) > 1 and word.isascii() and word.isalpha()}


class WordGame(Game):
    """Players name words in turn. A player that has no word left, or gives up, loses.

    A word that breaks the rules is an illegal action; ``[give up]`` is the legal way to lose.
    """

    perfect_information = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.words: list[str] = []
        self.winner: int | None = None

    @abstractmethod
    def choices(self) -> Sequence[str]:
        """All words that the player to move may name."""

    def named(self, word: str) -> None:
        """Called after a word was named, for games that keep a list of choices."""

    @property
    def current_player(self) -> int:
        return len(self.words) % 2

    @property
    def is_terminal(self) -> bool:
        return self.winner is not None or len(self.words) >= self.max_turns

    def parse(self, text: str) -> str | None:
        word = normalise(text)
        if word == "give up":
            return GIVE_UP
        return f"[{word}]" if word.isascii() and word.isalpha() else None

    def legal_actions(self) -> tuple[str, ...]:
        """At most twenty of the possible words, and giving up."""
        return () if self.is_terminal else (*(f"[{word}]" for word in self.choices()[:20]), GIVE_UP)

    def step(self, action: str) -> None:
        player, word = self.current_player, action[1:-1]
        if self.is_terminal or (action != GIVE_UP and (action != f"[{word}]" or word not in self.choices())):
            raise IllegalAction(f"{action} is not possible now")
        if action == GIVE_UP:
            self.winner = 1 - player
            return
        self.words.append(word)
        self.named(word)
        if not self.choices():
            self.winner = player

    def random_action(self, rng: random.Random) -> str:
        return f"[{rng.choice(self.choices())}]"

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)
