"""WordChains and SpellingBee: players name English words in turn.

The word list is a file in the package ``pyspellchecker`` (MIT): 128,000 words with their counts in film subtitles,
including inflected forms and some names. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import random
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

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
        if not self.choices():
            self.winner = player

    def random_action(self, rng: random.Random) -> str:
        return f"[{rng.choice(self.choices())}]"

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)


@cache
def _by_start() -> dict[tuple[str, int], tuple[str, ...]]:
    """(first letter, length) -> words, the most common first."""
    index: dict[tuple[str, int], list[str]] = {}
    for word, _ in sorted(word_counts().items(), key=lambda item: (-item[1], item[0])):
        index.setdefault((word[0], len(word)), []).append(word)
    return {key: tuple(words) for key, words in index.items()}


@cache
def _starts() -> tuple[str, ...]:
    """Common words of three or four letters, each with a hundred words to follow it."""
    common = (word for word, count in word_counts().items() if len(word) in (3, 4) and count >= 2000)
    return tuple(sorted(word for word in common if len(_by_start().get((word[-1], len(word) + 1), ())) >= 100))


class WordChains(WordGame):
    """A word begins with the last letter of the one before it and is one letter longer, so every game ends."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.start = self.random.choice(_starts())
        self.max_turns = max(length for _, length in _by_start()) - len(self.start) + 1

    @property
    def last(self) -> str:
        return self.words[-1] if self.words else self.start

    def choices(self) -> Sequence[str]:
        return _by_start().get((self.last[-1], len(self.last) + 1), ())

    def observation(self, player: int) -> str:
        return (
            "Word chains. In turn, name an English word that begins with the last letter of the word before it and has "
            "exactly one letter more. Who has none must give up and loses.\n"
            f"{self.render()}\n"
            f"Answer with a word of {len(self.last) + 1} letters that begins with '{self.last[-1]}', in brackets "
            f"([{self.last[-1]}{'_' * len(self.last)}]), or with [give up]."
        )

    def render(self) -> str:
        return f"The chain: {' '.join([self.start, *self.words])}"


@cache
def _by_letters() -> dict[str, tuple[str, ...]]:
    """Sorted letters -> the words of at least three letters that use exactly these letters."""
    index: dict[str, list[str]] = {}
    for word in word_counts():
        if len(word) >= 3:
            index.setdefault("".join(sorted({*word})), []).append(word)
    return {letters: tuple(words) for letters, words in index.items()}


@cache
def _boards() -> tuple[str, ...]:
    """Sets of seven letters that a common word uses completely."""
    of_common = {"".join(sorted({*word})) for word, count in word_counts().items() if count >= 1000}
    return tuple(sorted(letters for letters in of_common if len(letters) == 7))


@lru_cache(maxsize=4096)
def _words(letters: str) -> tuple[str, ...]:
    """All words of these letters, the shortest first and then the most common."""
    index, subsets = _by_letters(), [""]
    for letter in letters:
        subsets += [subset + letter for subset in subsets]
    words: Iterable[str] = (word for subset in subsets for word in index.get(subset, ()))
    return tuple(sorted(words, key=lambda word: (len(word), -word_counts()[word], word)))


class SpellingBee(WordGame):
    """Words of seven given letters, none twice, and each at least as long as the one before it. After ``turns`` words
    it is a draw."""

    def __init__(self, seed: int, turns: int = 30) -> None:
        super().__init__(seed)
        self.max_turns = turns
        self.letters = self.random.choice(_boards())

    @property
    def shortest(self) -> int:
        """The least length of the next word."""
        return len(self.words[-1]) if self.words else 3

    def choices(self) -> Sequence[str]:
        return tuple(word for word in _words(self.letters) if len(word) >= self.shortest and word not in self.words)

    def observation(self, player: int) -> str:
        return (
            "Spelling bee. In turn, name an English word of the given letters only (each as often as you like), at "
            "least as long as the word before it and not named yet. Who has none must give up and loses. After "
            f"{self.max_turns} words it is a draw.\n"
            f"{self.render()}\n"
            f"Answer with a word of at least {self.shortest} letters in brackets, like [word], or with [give up]."
        )

    def render(self) -> str:
        return f"Letters: {' '.join(self.letters)}\nWords so far: {' '.join(self.words) or 'none'}"
