"""A small game's whole tree: every deal of its chance, every position of legal play, every information set.

An information set is what a policy decides on: all positions that look the same to the player who is to move. The tree
is made by playing the registered games themselves, so it holds their rules and their observations and nothing else, and
its chance is enumerated, not sampled.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..games import Game, make, resolve

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
#: A deal that is as likely as the others is found among this many seeds for each deal, or there is no such deal.
SEEDS_PER_DEAL = 100


class _Chance(NamedTuple):
    """What is dealt before the first action; the games listed here have no chance after it.

    Attributes:
        deals: the number of deals, all equally likely.
        private: what a player knows of the deal.
        unit: what a reward of 1 is in the unit of the literature and of OpenSpiel.
    """

    deals: int
    private: Callable[[Any, int], Hashable]
    unit: float = 1.0


_NOTHING = _Chance(1, lambda game, player: None)
_GAMES = {
    "KuhnPoker": _Chance(6, lambda game, player: game.cards[player], unit=2.0),
    "LiarsDice-1": _Chance(36, lambda game, player: tuple(game.dice[player])),
    "Nim": _NOTHING,
    "TicTacToe": _NOTHING,
}
#: The games that are small enough.
ENUMERATED = tuple(_GAMES)


@dataclass(frozen=True)
class InformationSet:
    """One decision, as a policy sees it.

    Attributes:
        game_id: the game's id.
        player: whose decision it is.
        private: what the player alone knows of the deal: a card, dice; None in a game without.
        history: the actions that led to the first of its positions. Where there is something private, all positions of
            the set have this history, because every action is seen by both.
        observation: what the player is shown in every one of its positions.
        actions: the legal actions, in the order of the tree's columns.
        seed: of the first of its positions.
    """

    game_id: str
    player: int
    private: Any
    history: tuple[str, ...]
    observation: str
    actions: tuple[str, ...]
    seed: int

    def game(self) -> Game:
        """A fresh game, brought to the first of its positions."""
        game = make(self.game_id, self.seed)
        for action in self.history:
            game.step(action)
        return game


@dataclass(frozen=True, eq=False)
class GameTree:
    """A game as arrays over its nodes. A node is a position; where nothing is hidden, however it was reached.

    Attributes:
        game_id: the game's id.
        unit: what a reward of 1 is in the literature's unit: 2 chips in Kuhn poker, else 1.
        information_sets: all of them; a policy's rows.
        roots: the node after each deal; all deals are equally likely. [num_deals]
        players: who is to move, -1 where the game is over. [num_nodes]
        rows: the information set, -1 where the game is over. [num_nodes]
        children: the node after each action, -1 where there is none. [num_nodes, most_actions]
        rewards: player 0's outcome where the game is over (player 1's is its negative), else 0. [num_nodes]
        layers: the nodes that are not over, by the most actions that may follow, the fewest first: a node's children
            are in earlier layers, and the nodes of an information set are in one.
    """

    game_id: str
    unit: float
    information_sets: tuple[InformationSet, ...]
    roots: Indices
    players: Indices
    rows: Indices
    children: Indices
    rewards: Floats
    layers: tuple[Indices, ...]

    @cached_property
    def owners(self) -> Indices:
        """The player of each information set. [num_information_sets]"""
        return np.array([information_set.player for information_set in self.information_sets])

    @cached_property
    def legal(self) -> npt.NDArray[np.bool_]:
        """Which columns are actions. [num_information_sets, most_actions]"""
        numbers = np.array([len(information_set.actions) for information_set in self.information_sets])
        legal: npt.NDArray[np.bool_] = np.arange(self.children.shape[1]) < numbers[:, None]
        return legal

    @cached_property
    def is_tree(self) -> bool:
        """Whether every node is reached in one way only, so that a player knows all it did before."""
        reached = self.children[self.children >= 0]
        return len(np.unique(reached)) == len(reached)

    @cached_property
    def row_of(self) -> dict[tuple[int, str], int]:
        """(player, observation) -> the information set's row."""
        return {(s.player, s.observation): row for row, s in enumerate(self.information_sets)}


def game_tree(game_id: str) -> GameTree:
    """The tree of one of the games in ``ENUMERATED``; kept once it is made (LiarsDice-1 takes some seconds).

    Raises:
        ValueError: another game.
    """
    game_id = resolve(game_id)
    if game_id not in _GAMES:
        raise ValueError(f"{game_id} cannot be enumerated; the games that can are {', '.join(ENUMERATED)}")
    return _built(game_id)


@cache
def _built(game_id: str) -> GameTree:
    return _Builder(game_id, _GAMES[game_id]).build()


class _Builder:
    """Plays every line of a game, depth first."""

    def __init__(self, game_id: str, chance: _Chance) -> None:
        self.game_id, self.chance = game_id, chance
        self.sets: list[InformationSet] = []
        self.set_rows: dict[Hashable, int] = {}
        self.known: dict[Hashable, int] = {}  # the nodes that may be reached again
        self.players: list[int] = []
        self.rows: list[int] = []
        self.children: list[list[int]] = []
        self.rewards: list[float] = []
        self.heights: list[int] = []

    def build(self) -> GameTree:
        roots = [self._expand(game, ()) for game in self._deals()]
        self._check()
        heights = np.array(self.heights)
        most = max(map(len, self.children))
        return GameTree(
            self.game_id,
            self.chance.unit,
            tuple(self.sets),
            np.array(roots),
            np.array(self.players),
            np.array(self.rows),
            np.array([[*children, *[-1] * (most - len(children))] for children in self.children]),
            np.array(self.rewards),
            tuple(np.flatnonzero(heights == height) for height in range(1, heights.max() + 1)),
        )

    def _deals(self) -> list[Game]:
        """A game for every deal, found by its seed: one that can be played as well."""
        found: dict[Hashable, Game] = {}
        for seed in itertools.islice(itertools.count(), SEEDS_PER_DEAL * self.chance.deals):
            game = make(self.game_id, seed)
            found.setdefault(tuple(self.chance.private(game, player) for player in (0, 1)), game)
            if len(found) == self.chance.deals:
                return [found[deal] for deal in sorted(found, key=repr)]
        raise AssertionError(f"{self.game_id}: {len(found)} deals found, not {self.chance.deals}")

    def _expand(self, game: Game, history: tuple[str, ...]) -> int:
        """The node of a position, and all nodes after it."""
        if game.is_terminal:
            return self._add(-1, -1, [], game.rewards()[0])
        player = game.current_player
        private = self.chance.private(game, player)
        observation = game.observation(player)
        # Where nothing is hidden, what is seen is the position: TicTacToe's half million histories have 5478 of them.
        hidden = self.chance.deals > 1
        if not hidden and (player, observation) in self.known:
            return self.known[player, observation]
        row = self._row(
            InformationSet(self.game_id, player, private, history, observation, game.legal_actions(), game.seed)
        )
        children = []
        for action in self.sets[row].actions:
            after = branch(game)
            after.step(action)
            children.append(self._expand(after, (*history, action)))
        node = self._add(player, row, children, 0.0)
        if not hidden:
            self.known[player, observation] = node
        return node

    def _row(self, found: InformationSet) -> int:
        """The row of an information set: told apart by what the player knows, not by what it is shown."""
        hidden = self.chance.deals > 1
        key = (found.player, found.private, found.history if hidden else found.observation)
        row = self.set_rows.setdefault(key, len(self.sets))
        if row == len(self.sets):
            self.sets.append(found)
        known = self.sets[row]
        assert (known.observation, known.actions) == (found.observation, found.actions), (
            f"{self.game_id}: positions that player {found.player} cannot tell apart are shown differently: "
            f"{known.observation!r}, {found.observation!r}"
        )
        return row

    def _add(self, player: int, row: int, children: list[int], reward: float) -> int:
        self.players.append(player)
        self.rows.append(row)
        self.children.append(children)
        self.rewards.append(reward)
        self.heights.append(1 + max((self.heights[child] for child in children), default=-1))
        return len(self.players) - 1

    def _check(self) -> None:
        """That a player is shown all it knows, and that best responses may be found layer by layer."""
        shown = {(found.player, found.observation) for found in self.sets}
        assert len(shown) == len(self.sets), f"{self.game_id}: positions that a player can tell apart are shown alike"
        heights: dict[int, int] = {}
        for row, height in zip(self.rows, self.heights, strict=True):
            assert row < 0 or heights.setdefault(row, height) == height, f"{self.game_id}: row {row} is in two layers"


def branch(game: Game) -> Game:
    """``game.copy()`` for the games that are enumerated, in a tenth of the time.

    Their state is lists of plain values, and their chance has no say once the cards are dealt, so it is shared.
    """
    new = copy.copy(game)
    for name, value in vars(game).items():
        if isinstance(value, list):
            setattr(new, name, value.copy())
    return new
