"""The same numbers from OpenSpiel: another's best responses, and in Kuhn poker another's game as well.

Kuhn poker is OpenSpiel's own. Its liar's dice has wild sixes, so ours is given to it whole, in Gambit's format for
extensive games (https://gambitproject.readthedocs.io/en/latest/formats.efg.html).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from ..games.kuhn_poker import BET, CALL, CHECK, FOLD
from .information_sets import Floats, GameTree, InformationSet
from .tabulated import renormalised

#: Our actions in the letters of OpenSpiel's Kuhn poker, and the numbers of its actions.
_LETTERS = {CHECK: "p", FOLD: "p", BET: "b", CALL: "b"}
_NUMBERS = {"p": 0, "b": 1}


def nash_conv(tree: GameTree, table: Floats) -> float:
    """NashConv by OpenSpiel, of the policy given that its answers are legal, in the literature's unit.

    Raises:
        ImportError: OpenSpiel is not installed.
        ValueError: a game without anything hidden, which has no use for it.
    """
    table = renormalised(tree, table)
    if tree.game_id == "KuhnPoker":
        return _of_kuhn_poker(tree, table)
    if not tree.is_tree:
        raise ValueError(f"{tree.game_id}: nothing is hidden in it; optimal moves say more (see optimality.py)")
    game, keys, numbers = _loaded(tree)
    policy = {
        key: [(numbers[action], float(p)) for action, p in zip(found.actions, row, strict=False)]
        for key, found, row in zip(keys, tree.information_sets, table, strict=True)
    }
    return float(_pyspiel().nash_conv(game, policy)) * tree.unit


def information_state(found: InformationSet) -> str:
    """OpenSpiel's name of an information set of Kuhn poker: the card's number, and p or b for every action."""
    return str("JQK".index(found.private)) + "".join(_LETTERS[action] for action in found.history)


def _of_kuhn_poker(tree: GameTree, table: Floats) -> float:
    game = _pyspiel().load_game("kuhn_poker")
    # Imported by name: the package has no types.
    exploitability = importlib.import_module("open_spiel.python.algorithms.exploitability")
    policy = importlib.import_module("open_spiel.python.policy").TabularPolicy(game)
    for found, row in zip(tree.information_sets, table, strict=True):
        probabilities = policy.policy_for_key(information_state(found))
        for action, probability in zip(found.actions, row, strict=True):
            probabilities[_NUMBERS[_LETTERS[action]]] = probability
    return float(exploitability.nash_conv(game, policy))


@cache
def _loaded(tree: GameTree) -> tuple[Any, list[str], dict[str, int]]:
    """The tree in OpenSpiel; its names of our information sets, row by row; and its numbers of our actions."""
    game = _pyspiel().load_efg_game("\n".join(gambit(tree)))
    # It numbers actions by their first appearance in the text, and names information sets by player and number.
    numbers: dict[str, int] = {}
    for found in (tree.information_sets[row] for row in _rows_in_order(tree)):
        for action in found.actions:
            numbers.setdefault(action, len(numbers))
    keys = [
        f"{found.player}-{found.player}-{number}-"
        for found, number in zip(tree.information_sets, _set_numbers(tree), strict=True)
    ]
    return game, keys, numbers


def gambit(tree: GameTree) -> Iterator[str]:
    """The lines of a Gambit file with the whole tree. Node by node, every node followed by all that comes after it."""
    yield f'EFG 2 R "{tree.game_id}" {{ "player 0" "player 1" }}'
    sets = _set_numbers(tree)
    deals = " ".join(f'"{deal}" 1/{len(tree.roots)}' for deal in range(len(tree.roots)))
    yield f'c "" 1 "" {{ {deals} }} 0'
    for node in _preorder(tree):
        row = int(tree.rows[node])
        if row < 0:
            reward = float(tree.rewards[node])
            # An outcome's number stands for its payoffs, wherever it appears.
            yield f't "" {int(2 * reward) + 3} "" {{ {reward} {-reward} }}'
        else:
            actions = " ".join(f'"{action}"' for action in tree.information_sets[row].actions)
            yield f'p "" {int(tree.players[node]) + 1} {sets[row]} "" {{ {actions} }} 0'


def _set_numbers(tree: GameTree) -> list[int]:
    """The information sets' numbers, for either player from 1 without a gap."""
    counted = [0, 0]
    numbers = []
    for found in tree.information_sets:
        counted[found.player] += 1
        numbers.append(counted[found.player])
    return numbers


def _preorder(tree: GameTree) -> Iterator[int]:
    ahead = [int(root) for root in reversed(tree.roots)]
    while ahead:
        yield (node := ahead.pop())
        ahead += [int(child) for child in reversed(tree.children[node]) if child >= 0]


def _rows_in_order(tree: GameTree) -> Iterator[int]:
    return (row for row in (int(tree.rows[node]) for node in _preorder(tree)) if row >= 0)


def _pyspiel() -> Any:
    try:
        import pyspiel
    except ImportError as error:
        raise ImportError(
            "exploitability is measured with OpenSpiel, which is not installed: pip install 'verl-spiral[evaluation]' "
            "(the package open-spiel), or use best_response.nash_conv, which needs nothing"
        ) from error
    return pyspiel
