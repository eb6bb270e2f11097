"""Rules by hand: WordChains, SpellingBee, and their word list."""

from __future__ import annotations

import pytest

from recipe.spiral.games import IllegalAction
from recipe.spiral.games.spelling_bee import SpellingBee, _words
from recipe.spiral.games.word_chains import WordChains
from recipe.spiral.games.words import word_counts
from tests.games.playouts import needs_words

pytestmark = needs_words


def test_the_list_holds_words_in_all_their_forms() -> None:
    words = word_counts()
    assert {"cat", "cats", "walked", "running", "children", "telephone"} <= words.keys()
    assert not {"xyzzyx", "a", "don't", "qqq"} & words.keys()
    assert len(words) > 100_000


def chain(start: str) -> WordChains:
    game = WordChains(0)
    game.start = start
    return game


def test_a_chain_grows_by_a_letter_from_the_last_one() -> None:
    game = chain("cat")
    game.step("[turn]")
    game.step("[nurse]")
    assert game.current_player == 0
    for word in ("[elephant]", "[turtle]", "[eeeeee]", "[xxx]"):
        with pytest.raises(IllegalAction):
            game.step(word)
    game.step("[earthy]")
    assert "cat turn nurse earthy" in game.observation(1)


def test_who_leaves_the_other_without_a_word_wins() -> None:
    words = word_counts()
    longest = max(map(len, words))
    last = next(word for word in sorted(words) if len(word) == longest)
    game = chain("x" * (longest - 2) + last[0])
    assert last in game.choices()
    game.step(f"[{last}]")
    assert game.is_terminal and game.rewards() == (1.0, -1.0)


def bee(letters: str) -> SpellingBee:
    game = SpellingBee(0)
    game.letters = letters
    game.left = _words(letters)
    return game


def test_words_of_the_letters_no_shorter_and_no_word_twice() -> None:
    game = bee("aeinrst")
    game.step("[tree]")
    for word in ("[tea]", "[tree]", "[doors]", "[rrrrr]"):
        with pytest.raises(IllegalAction):
            game.step(word)
    game.step("[stain]")
    with pytest.raises(IllegalAction):
        game.step("[stain]")
    game.step("[train]")


def test_every_board_has_a_word_of_all_its_letters_and_a_choice() -> None:
    for seed in range(200):
        game = SpellingBee(seed)
        assert len({*game.letters}) == 7
        assert any({*word} == {*game.letters} for word in game.left)
        assert len(game.left) >= 10
