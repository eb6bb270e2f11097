"""WordChains: a word begins with the last letter of the one before it and is one letter longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from .words import WordGame, word_counts


@cache
def _index() -> dict[tuple[str, int], tuple[str, ...]]:
    """(first letter, length) -> words, the most common first."""
    index: dict[tuple[str, int], list[str]] = {}
    for word, _ in sorted(word_counts().items(), key=lambda item: (-item[1], item[0])):
        index.setdefault((word[0], len(word)), []).append(word)
    return {key: tuple(words) for key, words in index.items()}


@cache
def _starts() -> tuple[str, ...]:
    """Common words of three or four letters, each with a hundred words to follow it."""
    return tuple(
        sorted(
            word
            for word, count in word_counts().items()
            if len(word) in (3, 4) and count >= 2000 and len(_index().get((word[-1], len(word) + 1), ())) >= 100
        )
    )


class WordChains(WordGame):
    """Words grow by a letter each turn, so every game ends."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.start = self.random.choice(_starts())
        self.max_turns = max(length for _, length in _index()) - len(self.start) + 1

    @property
    def last(self) -> str:
        return self.words[-1] if self.words else self.start

    def choices(self) -> Sequence[str]:
        return _index().get((self.last[-1], len(self.last) + 1), ())

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
