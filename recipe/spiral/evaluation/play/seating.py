"""Policies as players: those with weights get prompts and sampling, each of the others is one player for all games."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ...players import Player, PolicyPlayer
from ...players.fixed import make_player
from ...players.policy import Generate
from ...players.prompts import Encode, encoder
from ..policies.policy import Policy
from ..policies.weights import read_tokenizer
from ..settings import Settings


class Seating:
    """Makes the players.

    Args:
        policies: all who may play.
        settings: the evaluation's.
        generate_as: gives a policy's engine; called when the policy is seated.
    """

    def __init__(self, policies: list[Policy], settings: Settings, generate_as: Callable[[Policy], Generate]) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._settings, self.generate_as = settings, generate_as
        self._tokenizers: dict[Path, Any] = {}
        self._fixed: dict[str, Player] = {}

    def __call__(self, name: str, game: str) -> Player:
        """The player of a policy's name at a game."""
        policy = self._policies[name]
        if policy.model is not None:
            return cast(Player, self._with_weights(policy, game))
        if name not in self._fixed:  # one player for all games: an endpoint's connections and budget are its own
            self._fixed[name] = make_player(policy.kind, policy.settings, name)
        return self._fixed[name]

    def _with_weights(self, policy: Policy, game: str) -> PolicyPlayer:
        settings, tokenizer = self._settings, self.tokenizer(policy)

        def decode(ids: list[int]) -> str:
            return str(tokenizer.decode(ids, skip_special_tokens=True))

        return PolicyPlayer(
            generate=self.generate_as(policy),
            encode=self.encode(policy, game),
            decode=decode,
            sampling={**settings.sampling.to_dict(), "max_tokens": settings.max_response_length},
            prompt_length=settings.max_prompt_length,
            name=policy.name,
        )

    def tokenizer(self, policy: Policy) -> Any:
        """A policy's tokenizer, read once.

        Raises:
            ValueError: transformers cannot read it.
        """
        folder = policy.tokenizer
        if folder not in self._tokenizers:
            self._tokenizers[folder] = read_tokenizer(folder)
        return self._tokenizers[folder]

    def encode(self, policy: Policy, game: str) -> Encode:
        """Turns a game's observations into the policy's prompts."""
        kwargs = self._settings.data.apply_chat_template_kwargs
        return encoder(self.tokenizer(policy), *policy.prompt(game), **kwargs)
