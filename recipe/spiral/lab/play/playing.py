"""Games between a person and an opponent, and what the person may see of them.

The person is a player like any other, so that the match is the one of training. A person who mistypes is asked again:
nothing that is not a legal action reaches the match. What an illegal answer of the opponent costs, its rules say.
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...games import Game, IllegalAction, make
from ...match import Rules, play
from ...players.player import Player, Position, Response
from ...players.prompts import boxed, extract_answer, last_box
from ...players.records import GameRecord, Turn
from ...players.seeds import GameKey
from ...processes.terminal import visible
from ..drawing import Drawn, drawn
from ..own_command import command
from ..record_folder import RecordFolder
from ..watching.game_metrics import reasoning

#: The person's name in records, and the split of the games' keys, in which nothing is trained or validated.
PERSON = "human"
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


@dataclass(frozen=True)
class Move:
    """A turn as the person may see it.

    Attributes:
        name: "you", or the opponent's.
        said: what was played, or why that was no legal action; "has moved" where the person may not know.
        response: what the opponent wrote besides its action; "" if that was nothing, or may not be seen yet.
    """

    name: str
    said: str
    response: str


@dataclass(frozen=True)
class Finished:
    """A game at its end, when nothing is hidden any more.

    Attributes:
        headline: how it ended for the person: "You won."
        why: what else is to be said about that.
        rewards: the person's, and the opponent's.
        revealed: all turns, in a game that hid something; else nothing.
        board: the whole game, as its own renderer shows it.
        table: the same, to be drawn.
        saved: where the game was saved, and how it is replayed.
    """

    headline: str
    why: str
    rewards: tuple[float, float]
    revealed: list[Move]
    board: str
    table: Drawn | None
    saved: str


class Face(Protocol):
    """Where the person plays."""

    async def ask(self, position: Position, complaint: str) -> str:
        """What the person enters at a position. ``complaint`` says what was wrong with the entry before, if it was."""

    def moved(self, move: Move, table: Drawn | None) -> None:
        """A turn was played, and so the table is now, as far as the person may see it."""


@dataclass(frozen=True)
class Person:
    """The player that a face asks."""

    face: Face
    name: str = PERSON

    async def respond(self, position: Position) -> Response:
        """Asks until the entry is a legal action."""
        complaint = ""
        while True:
            entry = await self.face.ask(position, complaint)
            try:
                return Response(response_of(position.game, entry))
            except Refused as refused:
                complaint = str(refused)


@dataclass
class Sitting:
    """One opponent, and one game after the other.

    Attributes:
        rules: by which is played.
        seed: decides all games: cards, dice, the opponent's draws.
        folder: where games are saved, as records that the report replays.
        role: the person's.
        responses: whether the person is shown what the opponent writes.
        played: how many games were begun.
    """

    game: str
    opponent: Player
    rules: Rules
    seed: int
    folder: Path
    role: int = 0
    responses: bool = True
    played: int = 0

    async def play(self, face: Face) -> Finished:
        """Play the next game, and save it.

        Raises:
            PlayerFailure, GameFailure: the game is void.
            PromptTooLong: the opponent cannot read the game's first prompt.
            Exception: what the face raises.
        """
        key = GameKey(PERSON, self.seed, 0, self.played)
        self.played += 1
        game = make(self.game, key.game_seed())
        players = (Person(face), self.opponent) if self.role == 0 else (self.opponent, Person(face))

        def show(turn: Turn) -> None:
            face.moved(self._move(turn, game.perfect_information), drawn(game, self.role))

        record = await play(key, self.game, game, players, (1 - self.role,), self.rules, show)
        record.opponent = PERSON
        return self._finished(game, record, self._save(record))

    def _save(self, record: GameRecord) -> str:
        games = RecordFolder(self.folder / "games")
        games.path.mkdir(parents=True, exist_ok=True)
        with (games.path / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two people may end their games at the same moment
            file = games.write(PERSON, max(games.steps(PERSON), default=0) + 1, [record])
        return visible(f"Saved: {file}\nReplay: {command('report', self.folder)}")

    def _move(self, turn: Turn, all_seen: bool) -> Move:
        """A turn; of the opponent's, only that it was played, unless nothing is hidden."""
        own, legal = turn.player == self.role, turn.verdict == "legal"
        said = visible(turn.action or "no legal move", 1000) if own or all_seen or not legal else "has moved"
        words = visible(reasoning(turn.response) if legal else turn.response)
        return Move(
            "you" if own else self.opponent.name,
            said if legal else f"{said} ({_WHY[turn.verdict]})",
            words if all_seen and not own and self.responses else "",
        )

    def _finished(self, game: Game, record: GameRecord, saved: str) -> Finished:
        headline = {"win": "You won.", "loss": "You lost.", "draw": "A draw."}[record.result(self.role)]
        name, why = self.opponent.name, ""
        match record.termination:
            case "illegal":
                why = f"{name} made no legal move: {_WHY[record.turns[-1].verdict]}. By the rules that ends the game."
            case "turn_cap":
                why = f"The game was ended after {len(record.turns)} turns, as a draw."
            case "prompt_too_long":
                headline, why = "Nobody won.", f"The game became too long for {name} to read, and both players lost it."
        return Finished(
            headline,
            why,
            (record.rewards[self.role], record.rewards[1 - self.role]),
            [self._move(turn, all_seen=True) for turn in record.turns if not game.perfect_information],
            visible(game.render()),
            drawn(game),
            saved,
        )


def response_of(game: Game, entry: str) -> str:
    """The response by which a person plays what it entered: an action, in a box or without one. Raises Refused: it is
    no legal action."""
    entry = entry.strip().encode("utf-8", "replace").decode()  # half a letter, a lone surrogate, cannot be saved
    response = entry if last_box(entry) is not None else boxed(entry.translate(_BRACES))
    action = game.parse(extract_answer(response) or "")
    try:
        if action is None:
            raise IllegalAction("it is no action of this game")
        game.copy().step(action)
    except IllegalAction as error:
        reason, short = visible(str(error), 300, 3), visible(action or entry, 60).replace("\n", " ")
        raise Refused(f"{short or 'nothing'}: {reason}.{_possible(game)}") from None
    return response


def choices(game: Game) -> tuple[str, ...]:
    """The legal actions of the player who is to move; () in games with free text, where they cannot be listed."""
    return game.legal_actions() if game.actions else ()


def _possible(game: Game) -> str:
    legal = choices(game)
    more = f" and {len(legal) - _NAMED} more" if len(legal) > _NAMED else ""
    return f" Possible: {' '.join(legal[:_NAMED])}{more}" if legal else ""
