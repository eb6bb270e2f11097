"""An evaluation's policies as players, and the loop that plays what its plan lacks, many games at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from ...games import GameFailure, make
from ...match import Rules, play
from ...players.player import Generate, Player, PlayerFailure, PolicyPlayer
from ...players.prompts import Encode, encoder
from ...players.records import GameRecord
from ...players.seeds import GameKey
from ..opponents.api.endpoint_client import NotAsked
from ..opponents.more_kinds import make_player
from .matchups import GameId, Plan
from .policies import Policy
from .policy_weights import read_tokenizer
from .settings import Settings

Item = TypeVar("Item")


class Seating:
    """Makes the players: those with weights get prompts and sampling, each of the others is one player for all games.

    ``generate_as`` gives a policy's engine; it is called when the policy is seated.
    """

    def __init__(
        self, policies: Sequence[Policy], settings: Settings, generate_as: Callable[[Policy], Generate]
    ) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._settings, self.generate_as = settings, generate_as
        self._read_tokenizer = cache(read_tokenizer)
        self._fixed: dict[str, Player] = {}

    def __call__(self, name: str, game: str) -> Player:
        """The player of a policy's name at a game."""
        policy, settings = self._policies[name], self._settings
        if policy.model is None:
            if name not in self._fixed:  # one player for all games: an endpoint's connections and budget are its own
                self._fixed[name] = make_player(policy.kind, policy.settings, name, run_dir=str(settings.eval_dir))
            return self._fixed[name]
        tokenizer, sampling = self.tokenizer(policy), settings.sampling
        player = PolicyPlayer(
            generate=self.generate_as(policy),
            encode=self.encode(policy, game),
            decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
            sampling={**vars(sampling), "max_tokens": settings.max_response_length},
            prompt_length=settings.max_prompt_length,
            name=policy.name,
        )
        return cast(Player, player)

    def tokenizer(self, policy: Policy) -> Any:
        """A policy's tokenizer, read once; ValueError: transformers cannot read it."""
        return self._read_tokenizer(policy.tokenizer)

    def encode(self, policy: Policy, game: str) -> Encode:
        """Turns a game's observations into the policy's prompts."""
        return encoder(self.tokenizer(policy), *policy.prompt(game), **policy.asked.chat_template_kwargs)

    def check(self, policy: Policy, games: Iterable[str]) -> None:
        """See that a policy with weights can be asked in these games; ValueError: a template does not go with its
        tokenizer's, or the first prompt of a game is too long already."""
        for game in sorted(games):
            state, limit, encode = make(game, 0), self._settings.max_prompt_length, self.encode(policy, game)
            try:
                tokens = len(encode(state.observation(state.current_player), ()))
            except Exception as error:  # chat templates are programs
                raise ValueError(
                    f"prompt.template={policy.prompt(game)[0]} ({policy.name}): does not go with {policy.tokenizer}: "
                    f"{error}"
                ) from error
            if tokens > limit:
                raise ValueError(
                    f"data.max_prompt_length={limit}: {policy.name} has prompts of {tokens} tokens and more in {game}, "
                    "and prompts are never cut; raise it, take a shorter prompt.template, or leave the game out"
                )


async def play_games(
    games: Sequence[tuple[GameId, int]],
    plan: Plan,
    seat: Seating,
    settings: Settings,
    ended: Callable[[GameRecord], None],
) -> None:
    """Play games, ``settings.concurrency`` at a time.

    A game in which a player, or the game itself, failed is void, and played again with other randomness:
    ``settings.void_retries`` times, in all starts of the evaluation together.

    Args:
        games: what is missing, each with the number of its next try.
        ended: is given each game when it has ended, void ones included.

    Raises:
        NotAsked: an endpoint's budget or quota is spent.
        Exception: whatever else a player raises that is no such failure.
    """
    rules = settings.match_rules

    async def play_until_it_counts(game: tuple[GameId, int]) -> None:
        id_, tries = game
        first, second = (seat(name, id_.game) for name in id_.players)
        for retry in range(tries, settings.void_retries + 1):
            record = await _play(id_, plan.key(id_, retry), (first, second), rules)
            ended(record)
            if record.discarded is None:
                return

    await for_each(games, play_until_it_counts, settings.concurrency)


async def _play(game: GameId, key: GameKey, players: tuple[Player, Player], rules: Rules) -> GameRecord:
    trainable = (game.role,)
    try:
        record = await play(key, game.game, make(game.game, key.game_seed()), players, trainable, rules)
    except NotAsked:
        raise
    except (PlayerFailure, GameFailure) as error:
        reason = f"{type(error).__name__}: {error}"
        record = GameRecord(key, game.game, game.players, trainable, discarded="void", reason=reason)
    record.opponent = game.opponent
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
