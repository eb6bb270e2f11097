"""Policies as players: prompts and sampling of those with weights, and one player for each of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ...play.players import Player, PolicyPlayer
from ...play.players.fixed import make_player
from ...play.players.policy import Generate
from ...play.prompts import Encode, encoder
from ..policies.policies import Policy
from ..settings import Settings


class Seating:
    """Who sits at a table.

    Args:
        policies: all of them.
        settings: the evaluation's.
        generate_as: a policy's engine; it is asked for when the policy is seated.
        tokenizer: what reads a tokenizer from a folder.
    """

    def __init__(
        self,
        policies: list[Policy],
        settings: Settings,
        generate_as: Callable[[Policy], Generate],
        tokenizer: Callable[[Path], Any] | None = None,
    ) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._settings, self._generate_as = settings, generate_as
        self._read = tokenizer or _tokenizer
        self._tokenizers: dict[Path, Any] = {}
        self._fixed: dict[str, Player] = {}

    def __call__(self, name: str, game: str) -> Player:
        """The player of that name at a game."""
        policy = self._policies[name]
        return self.fixed(policy) if policy.model is None else cast(Player, self.model(policy, game))

    def fixed(self, policy: Policy) -> Player:
        """One player for all games: an endpoint's places and budget are its own."""
        if policy.name not in self._fixed:
            self._fixed[policy.name] = make_player(policy.kind, policy.settings, policy.name)
        return self._fixed[policy.name]

    def model(self, policy: Policy, game: str) -> PolicyPlayer:
        settings, tokenizer = self._settings, self.tokenizer(policy)

        def decode(ids: list[int]) -> str:
            return str(tokenizer.decode(ids, skip_special_tokens=True))

        return PolicyPlayer(
            generate=self.generate(policy),
            encode=self.encode(policy, game),
            decode=decode,
            sampling={**settings.sampling, "max_tokens": settings.max_response_length},
            prompt_length=settings.max_prompt_length,
            name=policy.name,
        )

    def generate(self, policy: Policy) -> Generate:
        """A policy's engine."""
        return self._generate_as(policy)

    def tokenizer(self, policy: Policy) -> Any:
        """A policy's tokenizer, read once.

        Raises:
            ValueError: there is none that can be read.
        """
        folder = policy.tokenizer
        if folder not in self._tokenizers:
            self._tokenizers[folder] = self._read(folder)
        return self._tokenizers[folder]

    def encode(self, policy: Policy, game: str) -> Encode:
        """A game's observation as the policy's prompt."""
        kwargs = self._settings.chat_template_kwargs
        return encoder(self.tokenizer(policy), *policy.prompt(game), **kwargs)


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder}: holds no tokenizer that transformers reads ({error})") from error
