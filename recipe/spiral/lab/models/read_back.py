"""What the warm start learns from and is measured on: positions of random legal play, and questions about them.

A model that has only imitated random play need not read its prompt, because random play does not depend on it. Then
self-play has nothing to start from. So the warm start asks about the same observations: your card? what is on square
4? The questions are about the observation alone, never about what would be a good move.

A tiny model then names the owner of every square, and still does not notice two marks in a row; self-play hardly
teaches it to. So it can also be asked which square would make three in a row (``_lines``).
"""

from __future__ import annotations

import hashlib
import random
import string
from collections.abc import Sequence
from typing import NamedTuple

from ...games import Game, make
from ...games.kuhn_poker import BET, KuhnPoker
from ...games.tictactoe import LINES, MARKS, TicTacToe
from ...players.seeds import derive_seed


class Question(NamedTuple):
    """A question about an observation and its right answer; ``kind`` names it in measurements."""

    kind: str
    text: str
    answer: str

    def about(self, observation: str) -> str:
        """The observation with the question behind it, in the place of a prompt's observation."""
        return f"{observation}\nBefore that, a question: {self.text}"


class Position(NamedTuple):
    """A position as the player sees it that is to move, and what is true of it.

    Attributes:
        legal: the legal actions; none in a made-up position.
        questions: every question about it, with its right answer.
    """

    game: str
    observation: str
    legal: tuple[str, ...]
    questions: tuple[Question, ...]


def questions(game: Game, player: int, lines: bool = False) -> tuple[Question, ...]:
    """Every question about what ``player`` sees in a game that is not over.

    Args:
        lines: ask about TicTacToe's lines as well.

    Raises:
        ValueError: there are no questions about that game, so that no tiny model can be made for it.
    """
    if isinstance(game, TicTacToe):
        return (*_tictactoe(game, player), *(_lines(game, player) if lines else ()))
    if isinstance(game, KuhnPoker):
        return tuple(_kuhn(game, player))
    raise ValueError(
        f"there are no questions about {type(game).__name__}, only about TicTacToe and KuhnPoker; to teach a tiny "
        f"model another game, write some in {__name__}"
    )


def _tictactoe(game: TicTacToe, player: int) -> list[Question]:
    owners = {None: "free", player: "yours", 1 - player: "theirs"}
    asked = [Question("mark", "What is your mark?", f"[{MARKS[player]}]")]
    for square, owner in enumerate(game.board):
        mark = "free" if owner is None else MARKS[owner]
        asked.append(Question("square", f"What is on square {square}?", f"[{mark}]"))
        asked.append(Question("owner", f"Whose is square {square}?", f"[{owners[owner]}]"))
    return asked


def _lines(game: TicTacToe, player: int) -> list[Question]:
    """Which square would make three in a row, for either player. Not asked where there are several such squares.

    An answer is a square, as a move is. Questions with the answers yes and no, about a given square, do not help to
    find such a square (docs/results.md).
    """
    asked = []
    for who, owner in (("you", player), ("your opponent", 1 - player)):
        winning = [
            square
            for square, taken in enumerate(game.board)
            if taken is None and any({square} == {s for s in line if game.board[s] != owner} for line in LINES)
        ]
        if len(winning) < 2:
            kind, answer = ("line", f"[{winning[0]}]") if winning else ("no line", "[none]")
            asked.append(Question(kind, f"Which square would make three in a row for {who}?", answer))
    return asked


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


def random_play(game_id: str, games: int, seed: int, lines: bool = False) -> list[Position]:
    """The different positions of so many games of random legal play, in the order of their first visit."""
    visited: dict[str, Position] = {}
    for index in range(games):
        game = make(game_id, derive_seed(seed, "warm start", game_id, index))
        rng = random.Random(derive_seed(seed, "warm start moves", game_id, index))
        while not game.is_terminal:
            player = game.current_player
            observation = game.observation(player)
            if observation not in visited:
                asked = questions(game, player, lines)
                visited[observation] = Position(game_id, observation, game.legal_actions(), asked)
            game.step(game.random_action(rng))
    return list(visited.values())


def made_up(game_id: str, number: int, seed: int, without: Sequence[Position]) -> list[Position]:
    """Up to so many different positions that look like the game's own and need not be possible, with other observations
    than those of ``without``. Only questions make sense about them.

    They are for a game with so few positions that the answers could be learned by heart: Kuhn poker of one round. Of
    another game there are none.
    """
    rng = random.Random(derive_seed(seed, "made-up positions", game_id))
    excluded = {position.observation for position in without}
    positions: dict[str, Position] = {}
    for _ in range(number):
        game = make(game_id, 0)
        if not isinstance(game, KuhnPoker) or game.rounds > 1:
            return []
        # any two letters: with J, Q and K alone, each history soon implies a card
        first, second = rng.sample(string.ascii_uppercase, 2)
        game.cards = (first, second)
        game.history = tuple(rng.choice(game.actions) for _ in range(rng.randrange(7)))
        player = game.current_player
        observation = game.observation(player)
        if observation not in excluded:
            positions[observation] = Position(game_id, observation, (), questions(game, player))
    return list(positions.values())


def hold_out(positions: Sequence[Position], most: int) -> tuple[list[Position], list[Position]]:
    """Split a game's positions into those to train on and those held out: a tenth, at least three, at most ``most``.

    Which ones are held out depends on the observations alone.
    """
    number = max(3, min(most, len(positions) // 10))
    order = sorted(positions, key=lambda position: hashlib.blake2b(position.observation.encode()).digest())
    return order[number:], order[:number]
