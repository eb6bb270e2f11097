"""An evaluation's policies as players, and the loop that plays what its plan lacks, many games at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from tqdm import tqdm

from ....games import GameFailure, make
from ....match import Rules, play
from ....players.player import Player, PlayerFailure
from ....players.policy import Generate, PolicyPlayer
from ....players.prompts import Encode, encoder, get_template
from ....players.records import GameRecord
from ...opponents.api.endpoint_client import NotAsked
from ...opponents.more_kinds import make_player
from ..policies.evaluated_policy import Policy
from ..policies.policy_weights import read_tokenizer
from ..settings import Settings
from .matchups import PlannedGame
from .store import EvaluationStore

Item = TypeVar("Item")


class Seating:
    """Makes the players: those with weights get prompts and sampling, each of the others is one player for all games.

    ``generate_as`` gives a policy's engine; it is called when the policy is seated.
    """

    def __init__(self, policies: list[Policy], settings: Settings, generate_as: Callable[[Policy], Generate]) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._settings, self.generate_as = settings, generate_as
        self._read_tokenizer = cache(read_tokenizer)
        self._fixed: dict[str, Player] = {}

    def __call__(self, name: str, game: str) -> Player:
        """The player of a policy's name at a game."""
        policy, settings = self._policies[name], self._settings
        if policy.model is None:
            if name not in self._fixed:  # one player for all games: an endpoint's connections and budget are its own
                self._fixed[name] = make_player(policy.kind, policy.settings, name, run_dir=str(settings.whole))
            return self._fixed[name]
        tokenizer = self.tokenizer(policy)

        def decode(ids: list[int]) -> str:
            return str(tokenizer.decode(ids, skip_special_tokens=True))

        player = PolicyPlayer(
            generate=self.generate_as(policy),
            encode=self.encode(policy, game),
            decode=decode,
            sampling={**settings.sampling.to_dict(), "max_tokens": settings.max_response_length},
            prompt_length=settings.max_prompt_length,
            name=policy.name,
        )
        return cast(Player, player)

    def tokenizer(self, policy: Policy) -> Any:
        """A policy's tokenizer, read once; ValueError: transformers cannot read it."""
        return self._read_tokenizer(policy.tokenizer)

    def check_templates(self, policy: Policy, templates: Iterable[str]) -> None:
        """See that a policy's prompts can be made; ValueError: a template does not go with its tokenizer's."""
        for template in templates:
            try:
                get_template(template).encode(self.tokenizer(policy), "", **policy.chat_template_kwargs)
            except Exception as error:  # chat templates are programs
                raise ValueError(
                    f"prompt.template={template} ({policy.name}): does not go with {policy.tokenizer}: {error}"
                ) from error

    def check_lengths(self, policy: Policy, games: Iterable[str]) -> None:
        """See that a policy can be asked in these games; ValueError: the first prompt of one is too long already."""
        for game in sorted(games):
            state, limit = make(game, 0), self._settings.max_prompt_length
            tokens = len(self.encode(policy, game)(state.observation(state.current_player), ()))
            if tokens > limit:
                raise ValueError(
                    f"data.max_prompt_length={limit}: {policy.name} has prompts of {tokens} tokens and more in {game}, "
                    "and prompts are never cut; raise it, take a shorter prompt.template, or leave the game out"
                )

    def encode(self, policy: Policy, game: str) -> Encode:
        """Turns a game's observations into the policy's prompts."""
        return encoder(self.tokenizer(policy), *policy.prompt(game), **policy.chat_template_kwargs)


async def play_games(
    store: EvaluationStore, games: Sequence[PlannedGame], seat: Seating, settings: Settings, bar: tqdm
) -> list[PlannedGame]:
    """Play games, ``settings.concurrency`` at a time, and add each to the store when it has ended.

    A game in which a player, or the game itself, failed is stored as void, and played again with other randomness:
    ``settings.void_retries`` times, in all starts of the evaluation together.

    Args:
        games: what is missing, with the keys of their next tries.
        bar: moves with each game that counts.

    Returns:
        The games that were void each time.

    Raises:
        NotAsked: an endpoint's budget or quota is spent; what was played by then is stored.
        Exception: whatever else a player raises that is no such failure.
    """
    given_up: list[PlannedGame] = []

    async def play_until_it_counts(game: PlannedGame) -> None:
        first, second = (seat(name, game.id.game) for name in game.players)
        for retry in range(game.key.retry, settings.void_retries + 1):
            record = await _play(replace(game, key=replace(game.key, retry=retry)), (first, second), settings.rules)
            store.append(record)
            if record.discarded is None:
                bar.update()
                return
        given_up.append(game)

    await for_each(games, play_until_it_counts, settings.concurrency)
    return given_up


async def _play(game: PlannedGame, players: tuple[Player, Player], rules: Rules) -> GameRecord:
    game_id, trainable, key = game.id.game, (game.id.role,), game.key
    try:
        record = await play(key, game_id, make(game_id, key.game_seed()), players, trainable, rules)
    except NotAsked:
        raise
    except (PlayerFailure, GameFailure) as error:
        reason = f"{type(error).__name__}: {error}"
        record = GameRecord(key, game_id, game.players, trainable, discarded="void", reason=reason)
    record.opponent = game.id.opponent
    return record


async def for_each(items: Sequence[Item], work: Callable[[Item], Awaitable[None]], concurrency: int) -> None:
    """Do some work for each item, so many at a time. The first error ends all of it."""
    waiting = iter(items)  # one for all workers

    async def worker() -> None:
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
