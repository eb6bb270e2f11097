"""A language model as a player. It is given a ``generate`` function and does not know which engine serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .player import Position, PromptTooLong, Response
from .prompts import Encode
from .records import Tokens


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
