"""What a player is: shown a position, it responds with text. Where the text comes from is its own business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..games import Game
from ..prompts import History
from ..seeds import GameKey


class PlayerFailure(Exception):
    """The player could not respond for a reason that is nobody's fault in the game (a dead API): the game is void."""


@dataclass(frozen=True)
class Position:
    """What a player is shown when it is to move.

    Attributes:
        key: the game's key, from which the player takes its chance: ``key.seed("sample", player, turn)``.
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
class Tokens:
    """What a language model read and wrote in one turn.

    Attributes:
        prompt_ids: the prompt.
        response_ids: the response, end-of-sequence token included if there was one.
        log_probs: of the response's tokens, under the policy that sampled them; None where the engine gave none.
        weights: first and last weight version that sampled the response.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    log_probs: list[float] | None
    weights: tuple[int, int]


@dataclass(frozen=True)
class Response:
    """A player's answer: the text; for language models the tokens, and whether the length limit cut it off."""

    text: str
    tokens: Tokens | None = None
    cut_off: bool = False


class Player(Protocol):
    """Someone who can sit at the table. ``name`` goes into records and metrics ("policy", "random")."""

    name: str

    async def respond(self, position: Position) -> Response:
        """Answer to a position.

        Raises:
            PlayerFailure: there is no answer to be had; the game is void and will be replaced.
        """
        ...
