"""What the warm start learns from and is measured on: positions of random legal play, as text.

Some positions are held out: the model is never trained on them, neither to move nor to answer questions.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..games import make
from ..players.seeds import derive_seed
from .read_back import Question, line_questions, make_up, questions


@dataclass(frozen=True)
class Position:
    """A position as the player sees it that is to move, and what is true of it.

    Attributes:
        legal: the legal actions; none in a made-up position.
        questions: every question about it, with its right answer.
    """

    game: str
    observation: str
    legal: tuple[str, ...]
    questions: tuple[Question, ...]


def random_play(game_id: str, games: int, seed: int, lines: bool = False) -> list[Position]:
    """The different positions of so many games of random legal play, in the order of their first visit. ``lines``: ask
    about lines as well (``read_back.line_questions``)."""
    visited: dict[str, Position] = {}
    for index in range(games):
        game = make(game_id, derive_seed(seed, "warm start", game_id, index))
        rng = random.Random(derive_seed(seed, "warm start moves", game_id, index))
        while not game.is_terminal:
            player = game.current_player
            observation = game.observation(player)
            if observation not in visited:
                asked = questions(game, player) + (line_questions(game, player) if lines else [])
                visited[observation] = Position(game_id, observation, game.legal_actions(), tuple(asked))
            game.step(game.random_action(rng))
    return list(visited.values())


def made_up(game_id: str, number: int, seed: int, without: Sequence[Position]) -> list[Position]:
    """Up to so many different made-up positions to ask about, if the game needs any (see ``read_back.make_up``), with
    other observations than those of ``without``."""
    rng = random.Random(derive_seed(seed, "made-up positions", game_id))
    excluded = {position.observation for position in without}
    positions: dict[str, Position] = {}
    for _ in range(number):
        game = make(game_id, 0)
        if not make_up(game, rng):
            return []
        player = game.current_player
        observation = game.observation(player)
        if observation not in excluded:
            positions[observation] = Position(game_id, observation, (), tuple(questions(game, player)))
    return list(positions.values())


def hold_out(positions: Sequence[Position], most: int) -> tuple[list[Position], list[Position]]:
    """Split a game's positions into those to train on and those held out: a tenth, at least three, at most ``most``.

    Which ones are held out depends on the observations alone.
    """
    number = max(3, min(most, len(positions) // 10))
    order = sorted(positions, key=lambda position: hashlib.blake2b(position.observation.encode()).digest())
    return order[number:], order[:number]
