"""What a player is: it is shown a position and responds with text. Two kinds are here: a language model, which does not
know the engine that serves it, and the random player."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from ..games import Game, GameFailure, make, resolve
from .prompts import Encode, History, boxed
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


class Generation(NamedTuple):
    """One response from an engine, and whether the length limit ended it."""

    tokens: Tokens
    truncated: bool


#: ``generate(prompt_ids, sampling)``; ``sampling`` holds at least a ``seed``.
Generate = Callable[[list[int], Mapping[str, Any]], Awaitable[Generation]]


@dataclass(frozen=True)
class PolicyPlayer:
    """Prompts a model with what its side of the game has seen; each turn samples with its own seed.

    Attributes:
        generate: the engine.
        encode: observation and the player's turns before -> prompt ids.
        decode: response ids -> text without special tokens.
        sampling: temperature and the like, the same for every turn.
        prompt_length: the longest prompt that is accepted, in tokens.
    """

    generate: Generate
    encode: Encode
    decode: Callable[[list[int]], str]
    sampling: Mapping[str, Any]
    prompt_length: int
    name: str = "policy"

    async def respond(self, position: Position) -> Response:
        prompt_ids = self.encode(position.observation, position.history)
        if len(prompt_ids) > self.prompt_length:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens in game {position.key} (turn {position.turn} of player "
                f"{position.player}) is longer than data.max_prompt_length={self.prompt_length}: raise it, or choose a "
                "shorter prompt.template, prompt.style or game"
            )
        seed = position.key.seed("sampling", position.player, position.turn)
        tokens, truncated = await self.generate(prompt_ids, {**self.sampling, "seed": seed})
        return Response(self.decode(tokens.response_ids), tokens, truncated)


class RandomPlayer:
    """Draws uniformly from the legal actions, seeded by the game's key, the player and the turn."""

    name = "random"

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("random player", position.player, position.turn))
        return Response(boxed(position.game.random_action(rng)))


@cache
def check_random_play(game_id: str) -> None:
    """A ``ValueError`` if the game cannot be played at random, because it does not know its legal actions."""
    game_id, failure = resolve(game_id), None
    for seed in range(3):
        game, rng = make(game_id, seed), random.Random(seed)
        try:
            while not game.is_terminal:
                game.step(game.random_action(rng))
            return
        except GameFailure as error:
            failure = error
    raise ValueError(f"the random player cannot play {game_id}: {failure}")
