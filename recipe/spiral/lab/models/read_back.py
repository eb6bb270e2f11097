"""What the warm start learns from and is measured on: positions of random legal play, and questions about them.

A model that has only imitated random play need not read its prompt, because random play does not depend on it. Then
self-play has nothing to start from. So the warm start asks about the same observations: your card? what is on square
4? The questions are about the observation alone, never about what would be a good move.

A tiny model then names the owner of every square, and still does not notice two marks in a row; self-play hardly
teaches it to. So it can also be asked which square would make three in a row (``line_questions``).
"""

from __future__ import annotations

import hashlib
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from ...games import Game, make
from ...games.kuhn_poker import BET, KuhnPoker
from ...games.simple_negotiation import SimpleNegotiation
from ...games.tictactoe import LINES, MARKS, TicTacToe
from ...players.seeds import derive_seed


@dataclass(frozen=True)
class Question:
    """A question about an observation and its right answer; ``kind`` names it in measurements."""

    kind: str
    text: str
    answer: str

    def about(self, observation: str) -> str:
        """The observation with the question behind it, in the place of a prompt's observation."""
        return f"{observation}\nBefore that, a question: {self.text}"


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


class NoQuestions(ValueError):
    """There are no questions about a game, so that no tiny model can be made for it."""


@singledispatch
def questions(game: Game, player: int) -> list[Question]:
    """Every question about what ``player`` sees in a game that is not over. Raises NoQuestions: there are none for that
    game."""
    known = ", ".join(kind.__name__ for kind in questions.registry if kind not in (object, Game))
    raise NoQuestions(
        f"there are no read-back questions for {type(game).__name__}, only for {known}; to teach a tiny model another "
        f"game, write some in {__name__}"
    )


@questions.register
def _tictactoe(game: TicTacToe, player: int) -> list[Question]:
    owners = {None: "free", player: "yours", 1 - player: "theirs"}
    asked = [Question("mark", "What is your mark?", f"[{MARKS[player]}]")]
    for square, owner in enumerate(game.board):
        mark = "free" if owner is None else MARKS[owner]
        asked.append(Question("square", f"What is on square {square}?", f"[{mark}]"))
        asked.append(Question("owner", f"Whose is square {square}?", f"[{owners[owner]}]"))
    return asked


@questions.register
def _kuhn(game: KuhnPoker, player: int) -> list[Question]:
    last = game.history[-1] if game.history else "[none]"
    asked = [
        Question("card", "What is your card?", f"[{game.cards[player]}]"),
        Question("last action", "What was the last action?", last),
        Question("bet", "Is there a bet?", "[yes]" if BET in game.history else "[no]"),
        Question("first", "Who moves first?", "[you]" if game.starter == player else "[opponent]"),
    ]
    if game.rounds > 1:
        chips = game.won if player == 0 else -game.won
        asked.append(Question("chips", "How many chips do you have?", f"[{chips:+d}]"))
        asked.append(Question("round", "Which round is it?", f"[{game.round + 1}]"))
    return asked


@questions.register
def _negotiation(game: SimpleNegotiation, player: int) -> list[Question]:
    asked = [
        Question("worth", f"What is one {name} worth to you?", f"[{value}]")
        for name, value in game.values[player].items()
    ]
    asked += [
        Question("goods", f"How many {name} do you have?", f"[{count}]") for name, count in game.goods[player].items()
    ]
    offer = game.offer if player == game.current_player else None
    for kind, goods in zip(("get", "give"), offer or ({}, {}), strict=True):
        said = ", ".join(f"{count} {name}" for name, count in goods.items())
        asked.append(Question(kind, f"What would you {kind}?", f"[{said or 'none'}]"))
    return asked


def line_questions(game: Game, player: int) -> list[Question]:
    """Which square would make three in a row, for either player. Not asked where there are several such squares.

    An answer is a square, as a move is. Questions with the answers yes and no, about a given square, do not help to
    find such a square (docs/results.md). There are none for games that have no lines.
    """
    if not isinstance(game, TicTacToe):
        return []
    asked = []
    for who, owner in (("you", player), ("your opponent", 1 - player)):
        free = [square for square, taken in enumerate(game.board) if taken is None]
        winning = [square for square in free if _makes_line(game, square, owner)]
        if len(winning) < 2:
            kind, answer = ("line", f"[{winning[0]}]") if winning else ("no line", "[none]")
            asked.append(Question(kind, f"Which square would make three in a row for {who}?", answer))
    return asked


def _makes_line(game: TicTacToe, square: int, player: int) -> bool:
    return any(
        all(game.board[other] == player for other in line if other != square) for line in LINES if square in line
    )


def make_up(game: Game, rng: random.Random) -> bool:
    """Change the game into a random position that looks like one of its own and need not be possible.

    This is for games with so few positions that the answers could be learned by heart. Only questions make sense
    about such a position. Returns whether it was changed: games with enough positions of their own stay as they are.
    """
    if not isinstance(game, KuhnPoker) or game.rounds > 1:
        return False
    # any two letters: with J, Q and K alone, each history soon implies a card
    first, second = rng.sample(string.ascii_uppercase, 2)
    game.cards = (first, second)
    game.history = tuple(rng.choice(game.actions) for _ in range(rng.randrange(7)))
    return True


def random_play(game_id: str, games: int, seed: int, lines: bool = False) -> list[Position]:
    """The different positions of so many games of random legal play, in the order of their first visit. ``lines``: ask
    about lines as well (``line_questions``)."""
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
    """Up to so many different made-up positions to ask about, if the game needs any (see ``make_up``), with
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
