"""SpellingBee: words of seven given letters, each at least as long as the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from .words import WordGame, word_counts


@cache
def _index() -> dict[str, tuple[str, ...]]:
    """Sorted letters -> the words of at least three letters that use exactly these letters."""
    index: dict[str, list[str]] = {}
    for word in word_counts():
        if len(word) >= 3:
            index.setdefault("".join(sorted({*word})), []).append(word)
    return {letters: tuple(words) for letters, words in index.items()}


@cache
def _boards() -> tuple[str, ...]:
    """Sets of seven letters that a common word uses completely."""
    return tuple(
        sorted(
            letters
            for letters, words in _index().items()
            if len(letters) == 7 and any(word_counts()[word] >= 1000 for word in words)
        )
    )


@lru_cache(maxsize=4096)
def _words(letters: str) -> tuple[str, ...]:
    """All words of these letters, the shortest first and then the most common."""
    index, subsets = _index(), [""]
    for letter in letters:
        subsets += [subset + letter for subset in subsets]
    words: Iterable[str] = (word for subset in subsets for word in index.get(subset, ()))
    return tuple(sorted(words, key=lambda word: (len(word), -word_counts()[word], word)))


class SpellingBee(WordGame):
    """No word twice; after ``turns`` words the game is a draw."""

    def __init__(self, seed: int, turns: int = 30) -> None:
        super().__init__(seed)
        if turns < 1:
            raise ValueError(f"turns={turns}: must be at least 1")
        self.max_turns = turns
        self.letters = self.random.choice(_boards())
        self.left = _words(self.letters)

    @property
    def shortest(self) -> int:
        """The least length of the next word."""
        return len(self.words[-1]) if self.words else 3

    def choices(self) -> Sequence[str]:
        return self.left

    def named(self, word: str) -> None:
        self.left = tuple(other for other in self.left if len(other) >= len(word) and other != word)

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
