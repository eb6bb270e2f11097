"""Seeds: the same for the same names, different for different ones, and known in advance."""

from __future__ import annotations

import random

from recipe.spiral.players.seeds import GameKey, derive_seed

KEY = GameKey("train", 7, 3, 12)


def test_seeds_are_the_same_in_every_process_and_version() -> None:
    """Pinned: a run recorded today must be the same run when it is repeated."""
    assert derive_seed("a", 1) == 6431086039603022688
    assert KEY.seed("game") == 1424814250368861213
    assert KEY.seed("sampling", 1, 0) == 8269242944996751309


def test_seeds_ask_nothing_of_the_process() -> None:
    random.seed(1)
    first, state = KEY.seed("game"), random.getstate()
    random.seed(2)
    assert KEY.seed("game") == first
    random.seed(1)
    KEY.seed("game")
    assert random.getstate() == state


def test_every_part_of_a_key_matters() -> None:
    keys = [KEY, GameKey("val", 7, 3, 12), GameKey("train", 8, 3, 12), GameKey("train", 7, 4, 12)]
    keys += [GameKey("train", 7, 3, 13), KEY.next_retry(), GameKey("train", 7, 31, 2)]
    seeds = [
        key.seed(purpose, *parts) for key in keys for purpose in ("game", "sampling") for parts in ((), (0,), (1,))
    ]
    assert len(set(seeds)) == len(seeds)


def test_keys_sort_as_a_run_counts_its_games() -> None:
    """By number, not by digits: step 9 comes before step 10, index 2 before 11, a retry behind its game."""
    order = [(1, 5, 0), (9, 0, 0), (10, 2, 0), (10, 2, 1), (10, 11, 0)]
    keys = [GameKey("train", 7, *parts) for parts in order]
    assert sorted(random.Random(0).sample(keys, len(keys))) == keys


def test_a_retry_is_another_game_under_the_same_first_name() -> None:
    again = KEY.next_retry().next_retry()
    assert again.retry == 2
    assert again.first_try() == KEY
    assert str(again) == "train-7-3-12-2"
    assert GameKey(**again.to_dict()) == again
