"""What a player is: it is shown a position and responds with text, wherever that comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..games import Game
from .prompts import History
from .records import Tokens
from .seeds import GameKey


class PlayerFailure(Exception):
    """The player could not respond, for a reason outside the game (a dead API): the game is void.

    Attributes:
        again: whether the game may be played anew at once.
    """

    again = True


class PlayerMisconfigured(ValueError):
    """The player can never respond (a missing key, weights of other shapes): the run stops."""


class PromptTooLong(ValueError):
    """The player's prompt has more tokens than are allowed; it is refused, never cut."""


@dataclass(frozen=True)
class Position:
    """What a player is shown when it is to move.

    Attributes:
        key: the game's key, from which the player takes its randomness: ``key.seed("sample", player, turn)``.
        game: the game itself, for players that compute; whoever answers from text uses ``observation`` alone.
        player: who is to move, 0 or 1.
        turn: how many turns this player has had before.
        observation: what the player may see.
        history: this player's turns before, each as what it saw and the canonical action that it took; nothing of the
            other player's, and no reasoning.
    """

    key: GameKey
    game: Game
    player: int
    turn: int
    observation: str
    history: History = ()


@dataclass(frozen=True)
class Response:
    """A player's answer: the text.

    For language models also the tokens, and whether the length limit cut it off; ``usage`` is for the record alone.
    """

    text: str
    tokens: Tokens | None = None
    truncated: bool = False
    usage: dict[str, Any] | None = None


class Player(Protocol):
    """Someone who can sit at the table."""

    @property
    def name(self) -> str:
        """What records and metrics call it: "policy", "random"."""

    async def respond(self, position: Position) -> Response:
        """Answer to a position.

        Raises:
            PlayerFailure: there is no answer; the game is void and will be replaced.
            PlayerMisconfigured: there never will be one.
            PromptTooLong: it cannot be asked at this position.
        """
