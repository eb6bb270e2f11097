"""One game between a person and an opponent, and what the person may see of it.

A person who mistypes is asked again: nothing that is not a legal action reaches the match. The opponent's answer goes
through the match as in training, and its rules say what an illegal one costs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from ...games import Game, GameFailure, IllegalAction, make
from ...match import Rules, play
from ...players.player import Player, Position, Response
from ...players.prompts import boxed, extract_answer, last_box
from ...players.records import GameRecord, Turn
from ...players.seeds import GameKey
from ...processes.terminal import visible
from ..drawing.drawn import Drawn, drawn
from ..watching.game_metrics import reasoning

#: The person's name in records, and the kind of opponent that it is.
PERSON = "human"
#: The split of the games' keys, in which nothing is trained or validated.
SPLIT = "human"
#: The number of characters of an entry that are read.
LONGEST_ENTRY = 4000
#: How many actions a message names.
_NAMED = 12
_BRACES = str.maketrans("", "", "{}\\")
_WHY = {
    "no_answer": "its response has no \\boxed{} with an answer",
    "unreadable": "its answer is no action of this game",
    "illegal": "its action is against the rules",
    "truncated": "its response was longer than allowed and was cut off",
}


class Refused(ValueError):
    """An entry is no legal action; the message says why."""


class Left(Exception):
    """The person has left the game; the message says how, for others."""


@dataclass(frozen=True)
class Table:
    """What is played, by whom: the opponent is a name, the role the person's."""

    game: str
    opponent: str
    role: int
    rules: Rules

    def name(self, player: int) -> str:
        return "you" if player == self.role else self.opponent


@dataclass(frozen=True)
class Move:
    """A turn as the person may see it.

    Attributes:
        name: "you", or the opponent's.
        action: what was played; None: the person may not know, or it was no action.
        response: what the opponent wrote besides its action; "" if that was nothing, or may not be seen yet.
        wrong: why the turn was no legal action; "" if it was one.
    """

    name: str
    action: str | None
    response: str
    wrong: str


@dataclass(frozen=True)
class Finished:
    """A game at its end, when nothing is hidden any more.

    Attributes:
        headline: how it ended for the person: "You won."
        why: what else is to be said about that.
        board: the whole game, as its own renderer shows it.
        table: the same, to be drawn; None where it cannot be.
        seen: what the opponent saw last; "" in a game that hides nothing.
    """

    record: GameRecord
    headline: str
    why: str
    moves: list[Move]
    board: str
    table: Drawn | None
    seen: str


@dataclass(frozen=True)
class Responding:
    """A player whose responses a function gives."""

    name: str
    respond: Callable[[Position], Coroutine[Any, Any, Response]]


class Face(Protocol):
    """Where the person plays."""

    async def ask(self, position: Position, complaint: str) -> str:
        """What the person enters at a position. ``complaint`` says what was wrong with the entry before, if it was.
        Raises Left: the person does not go on."""

    def waits(self) -> None:
        """The opponent is to move."""

    def moved(self, move: Move, table: Drawn | None) -> None:
        """A turn was played, and so the table is now, as far as the person may see it."""


async def play_game(table: Table, opponent: Player, face: Face, key: GameKey) -> Finished:
    """Play one game.

    Raises:
        Left: the person has left.
        PlayerFailure, GameFailure: the game is void.
        PromptTooLong: the opponent cannot read the game's first prompt.
    """
    game = make(table.game, key.game_seed())

    async def ask(position: Position) -> Response:
        """Until the entry is a legal action."""
        complaint = ""
        while True:
            entry = await face.ask(position, complaint)
            try:
                return Response(response_of(position.game, entry))
            except Refused as refused:
                complaint = str(refused)

    async def wait(position: Position) -> Response:
        face.waits()
        return await opponent.respond(position)

    person, other = Responding(PERSON, ask), Responding(table.opponent, wait)
    players = (person, other) if table.role == 0 else (other, person)

    def show(turn: Turn) -> None:
        face.moved(_move(table, turn, open_=game.perfect_information), table_of(game, table.role))

    record = await play(key, table.game, game, players, (1 - table.role,), table.rules, show)
    record.opponent = PERSON
    return _finished(table, game, record)


def response_of(game: Game, entry: str) -> str:
    """The response by which a person plays what it entered: an action, in a box or without one. Raises Refused: it is
    no legal action."""
    entry = entry.strip().encode("utf-8", "replace").decode()  # half a letter, a lone surrogate, cannot be saved
    if not entry:
        raise Refused("Nothing was entered.")
    if len(entry) > LONGEST_ENTRY:
        raise Refused(f"That has {len(entry)} characters; up to {LONGEST_ENTRY} are read.")
    response = entry if last_box(entry) is not None else boxed(entry.translate(_BRACES))
    action = game.parse(extract_answer(response) or "")
    if action is None:
        short = visible(entry, 60).replace("\n", " ")
        raise Refused(f"'{short}' is no action of this game.{_possible(game)}")
    try:
        game.copy().step(action)
    except IllegalAction as error:
        reason = visible(str(error), 300, 3)
        raise Refused(f"{visible(action, 60)} is not possible now ({reason}).{_possible(game)}") from None
    return response


def choices(game: Game) -> tuple[str, ...]:
    """The legal actions of the player who is to move; () in games with free text, where they cannot be listed."""
    return game.legal_actions() if game.actions else ()


def table_of(game: Game, viewer: int | None = None) -> Drawn | None:
    """As ``drawn``; None also where the game fails at it."""
    try:
        return drawn(game, viewer)
    except GameFailure:
        return None


def _possible(game: Game) -> str:
    legal = choices(game)
    if not legal:
        return ""
    more = f" and {len(legal) - _NAMED} more" if len(legal) > _NAMED else ""
    return f" Possible: {' '.join(legal[:_NAMED])}{more}"


def _move(table: Table, turn: Turn, open_: bool) -> Move:
    """A turn; of the opponent's, only that it was played, unless nothing is hidden."""
    own = turn.player == table.role
    seen = own or open_
    action = visible(turn.action, 1000) if seen and turn.action is not None else None
    said = reasoning(turn.response) if turn.verdict == "legal" else turn.response
    response = visible(said) if open_ and not own else ""
    return Move(table.name(turn.player), action, response, _WHY.get(turn.verdict, ""))


def _finished(table: Table, game: Game, record: GameRecord) -> Finished:
    headline = {"win": "You won.", "loss": "You lost.", "draw": "A draw."}[record.result(table.role)]
    name = table.opponent
    match record.termination:
        case "illegal":
            why = f"{name} made no legal move: {_WHY[record.turns[-1].verdict]}. By the rules that ends the game."
        case "turn_cap":
            why = f"The game was ended after {len(record.turns)} turns, as a draw."
        case "prompt_too_long":
            headline, why = "Nobody won.", f"The game became too long for {name} to read, and both players lost it."
        case _:
            why = ""
    try:
        board = visible(game.render())
    except GameFailure as error:
        board = visible(str(error), 300, 1)
    last = next((turn.observation for turn in reversed(record.turns_of(1 - table.role))), "")
    return Finished(
        record,
        headline,
        why,
        [_move(table, turn, open_=True) for turn in record.turns],
        board,
        table_of(game),
        "" if game.perfect_information else visible(last),
    )
