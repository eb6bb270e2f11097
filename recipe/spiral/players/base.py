"""What a player is: it is shown a position and responds with text, wherever that comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..games import Game
from .prompts import History
from .seeds import GameKey


class PlayerFailure(Exception):
    """The player could not respond, for a reason outside the game (a dead API): the game is void.

    Attributes:
        again: whether the game may be played anew at once.
    """

    again = True


class PlayerMisconfigured(ValueError):
    """The player can never respond (a refused key, an unknown model): the run stops."""


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
class Tokens:
    """What a language model read and wrote in one turn.

    Attributes:
        prompt_ids: the prompt.
        response_ids: the response, end-of-sequence token included if there was one.
        log_probs: of the response's tokens, under the policy that sampled them; None where the engine gave none.
        weight_versions: first and last version of the policy's weights that sampled the response; None: another
            model did.
        answered_by: the name of the model whose weights sampled it, as its server says; None: the policy.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    log_probs: list[float] | None
    weight_versions: tuple[int, int] | None
    answered_by: str | None = None


@dataclass(frozen=True)
class Usage:
    """What was asked of an endpoint that is paid for.

    Attributes:
        prompt_tokens: tokens that were read.
        response_tokens: tokens that were written, hidden reasoning included.
        cost: in US dollars; None where no prices are known.
        estimated: whether the endpoint did not count, and the numbers are estimates from the texts' lengths.
    """

    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float | None = None
    estimated: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.response_tokens + other.response_tokens,
            sum(costs) if costs else None,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True)
class Response:
    """A player's answer: the text.

    For language models also the tokens, and whether the length limit cut it off; for endpoints what it used.
    """

    text: str
    tokens: Tokens | None = None
    truncated: bool = False
    usage: Usage | None = None


class Player(Protocol):
    """Someone who can sit at the table."""

    @property
    def name(self) -> str:
        """What records and metrics call it: "policy", "random"."""
        ...

    async def respond(self, position: Position) -> Response:
        """Answer to a position.

        Raises:
            PlayerFailure: there is no answer; the game is void and will be replaced.
            PlayerMisconfigured: there never will be one.
            PromptTooLong: it cannot be asked at this position.
        """
        ...
