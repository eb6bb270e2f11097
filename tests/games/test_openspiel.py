"""Our games against OpenSpiel's, state by state on random playouts; Kuhn poker's histories all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from recipe.spiral.games import Game, make
from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.games.liars_dice import LiarsDice
from recipe.spiral.games.pig_dice import HOLD, ROLL, PigDice

pyspiel = pytest.importorskip("pyspiel", reason="needs the extra 'test' (open-spiel)")


def tic_tac_toe(name: str) -> str:
    """x(1,2) -> [5]"""
    return f"[{3 * int(name[2]) + int(name[4])}]"


def connect_four(name: str) -> str:
    """x3 -> [3]"""
    return f"[{name[1]}]"


def nim(name: str) -> str:
    """pile:1, take:3; -> [0 3]"""
    pile, take = (int(part.split(":")[1]) for part in name.rstrip(";").split(","))
    return f"[{pile - 1} {take}]"


def breakthrough(name: str) -> str:
    """a7b6* -> [a2b3]: there player 0 begins at the top."""
    return f"[{name[0]}{9 - int(name[1])}{name[2]}{9 - int(name[3])}]"


PERFECT_INFORMATION = {
    "TicTacToe": ("tic_tac_toe", tic_tac_toe),
    "ConnectFour": ("connect_four", connect_four),
    "Nim": ("nim(pile_sizes=3;4;5,is_misere=false)", nim),
    "Breakthrough": ("breakthrough", breakthrough),
}


def compare_playouts(game_id: str, name: str, translate: Callable[[str], str], games: int) -> None:
    theirs_game = pyspiel.load_game(name)
    rng = random.Random(1)
    for seed in range(games):
        ours, theirs = make(game_id, seed), theirs_game.new_initial_state()
        while not theirs.is_terminal():
            actions = {translate(theirs.action_to_string(action)): action for action in theirs.legal_actions()}
            assert not ours.is_terminal
            assert ours.current_player == theirs.current_player()
            assert {*ours.legal_actions()} == {*actions}
            choice = rng.choice(sorted(actions))
            ours.step(choice)
            theirs.apply_action(actions[choice])
        assert ours.is_terminal
        assert list(ours.rewards()) == theirs.returns()


@pytest.mark.parametrize("game_id", PERFECT_INFORMATION)
def test_states_agree(game_id: str) -> None:
    compare_playouts(game_id, *PERFECT_INFORMATION[game_id], games=100)


def kuhn_with_cards(cards: tuple[str, str]) -> KuhnPoker:
    """A game that was dealt these cards, found by its seed."""
    return next(game for game in (KuhnPoker(seed) for seed in itertools.count()) if game.cards == cards)


@pytest.mark.parametrize("deal", [*itertools.permutations(range(3), 2)])
def test_all_histories_of_kuhn_poker(deal: tuple[int, int]) -> None:
    histories = []

    def walk(ours: Game, theirs: Any, history: str) -> None:
        if theirs.is_terminal():
            assert ours.is_terminal
            assert [2 * reward for reward in ours.rewards()] == theirs.returns()
            histories.append(history)
            return
        assert ours.current_player == theirs.current_player()
        passive, active = ("[fold]", "[call]") if "b" in history else ("[check]", "[bet]")
        assert {*ours.legal_actions()} == {passive, active}
        for action, name in ((0, passive), (1, active)):
            branch = ours.copy()
            branch.step(name)
            walk(branch, theirs.child(action), history + "pb"[action])

    state = pyspiel.load_game("kuhn_poker").new_initial_state()
    for card in deal:
        state.apply_action(card)
    walk(kuhn_with_cards(("JQK"[deal[0]], "JQK"[deal[1]])), state, "")
    assert sorted(histories) == ["bb", "bp", "pbb", "pbp", "pp"], "five histories for each of the six deals: thirty"


@pytest.mark.parametrize("seed", range(100))
def test_pig(seed: int) -> None:
    ours, theirs = PigDice(seed, target=30, rounds=500), pyspiel.load_game("pig(winscore=30)").new_initial_state()
    rng = random.Random(seed)
    while not ours.is_terminal:
        assert ours.current_player == theirs.current_player()
        assert ours.legal_actions() == (ROLL, HOLD)
        assert str(theirs).startswith(f"Scores: {ours.scores[0]} {ours.scores[1]}, Turn total: {ours.round_sum}\n")
        action = rng.choice((ROLL, ROLL, ROLL, HOLD))
        face = ours.copy().random.randint(1, 6)
        ours.step(action)
        theirs.apply_action(0 if action == ROLL else 1)
        if action == ROLL:
            theirs.apply_action(face - 1)
    if not theirs.is_terminal():
        theirs.apply_action(1)  # there one must still hold when the target is reached
    assert list(ours.rewards()) == theirs.returns()


@pytest.mark.parametrize("dice", [1, 2, 5])
def test_the_first_round_of_liars_dice(dice: int) -> None:
    """There sixes are wild and a round is the game: bids agree always, losers where no six was rolled."""
    game, compared = pyspiel.load_game(f"liars_dice(numdice={dice})"), 0
    rng = random.Random(1)
    for seed in range(400):
        ours, theirs = LiarsDice(seed, dice), game.new_initial_state()
        for face in (*ours.dice[0], *ours.dice[1]):
            theirs.apply_action(face - 1)
        no_six = 6 not in (*ours.dice[0], *ours.dice[1])
        while not theirs.is_terminal():
            assert ours.current_player == theirs.current_player()
            actions = dict(zip(ours.legal_actions(), theirs.legal_actions(), strict=True))
            choice = rng.choice([*actions][:8] + [*actions][-1:])
            bid = theirs.action_to_string(actions[choice])
            assert choice == ("[call]" if bid == "Liar" else f"[bid: {bid.replace('-', ', ')}]")
            ours.step(choice)
            theirs.apply_action(actions[choice])
        if no_six:
            compared += 1
            loser = theirs.returns().index(-1)
            assert ours.counts[loser] == dice - 1 and ours.counts[1 - loser] == dice
    assert compared > 20
