"""Who plays whom in which game and role, each game's key, the players, and the loop that plays many games at a time.

A game's key is a function of the seed and of the game's own place: raising the number of games or adding match-ups
changes no game that there was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple, TypeVar, cast

from ...games import GameFailure, make
from ...match import Rules, play
from ...players.player import Generate, Player, PlayerFailure, PolicyPlayer
from ...players.prompts import Encode, encoder
from ...players.records import GameRecord
from ...players.seeds import GameKey, derive_seed
from ...rollouts.end_tokens import end_tokens
from ..opponents import make_player
from ..opponents.api_player import NotAsked
from .policies import Policy
from .policy_weights import Scorer, load, of_model, read_tokenizer
from .settings import MatchUps, Randomness, Settings

SPLIT = "eval"
#: A policy, its opponent and the game; the policy plays both roles. The two may be the same.
MatchUp = tuple[str, str, str]
Item = TypeVar("Item")


class GameId(NamedTuple):
    """Which of an evaluation's games this is. A void game and the game that is played instead have the same.

    ``role`` says which player the policy is, the record's only trainable one. ``place`` counts its games in this role.
    """

    policy: str
    opponent: str
    game: str
    role: int
    place: int

    @classmethod
    def of(cls, record: GameRecord) -> GameId:
        """A record's; ValueError: it has not one trainable player, the policy."""
        (role,) = record.trainable
        return cls(record.players[role], record.players[1 - role], record.game, role, record.key.index)

    @property
    def players(self) -> tuple[str, str]:
        """The names of players 0 and 1."""
        return (self.policy, self.opponent) if self.role == 0 else (self.opponent, self.policy)

    def key(self, seed: int, randomness: Randomness, retry: int = 0) -> GameKey:
        """The game's key. Where a run's games have the run's seed, it has a seed for its randomness.

        Args:
            randomness: which games have the same cards, dice, opponent's draws and sampling seeds. "shared": the games
                of all policies against the same opponent, in the same game, role and place (common random numbers).
                Differences between policies are then more certain, but their results are not independent. "own": no
                two.
        """
        alike = self[1:4] if randomness is Randomness.shared else self[:4]
        # as JSON, because names may hold any separator
        return GameKey(SPLIT, derive_seed("evaluation", seed, randomness, json.dumps(alike)), 0, self.place, retry)


def plan(
    policies: Sequence[Policy], opponents: Sequence[Policy], settings: Settings
) -> tuple[list[MatchUp], list[str]]:
    """The match-ups of the kinds that ``settings.match_ups`` names, each once; and why others are left out."""
    known = {policy.name: policy for policy in (*policies, *opponents)}
    names, others = [policy.name for policy in policies], [policy.name for policy in opponents]
    pairs: list[tuple[str, str]] = []
    for kind in settings.match_ups:
        pairs += product(names, others) if kind is MatchUps.cross else _round_robin(names, others)
    match_ups, left_out = [], []
    for policy, opponent, game in dict.fromkeys((*pair, game) for pair, game in product(pairs, settings.games)):
        if reason := known[policy].unable(game) or known[opponent].unable(game):
            left_out.append(f"{policy} against {opponent} in {game}: {reason}")
        else:
            match_ups.append((policy, opponent, game))
    return match_ups, left_out


def _round_robin(policies: Sequence[str], opponents: Sequence[str]) -> list[tuple[str, str]]:
    """Everybody with everybody else once: a match-up has both seatings already.

    Of two policies "the policy" is the one whose name sorts later (of a run's snapshots, the newer one). So one more
    policy changes none of the match-ups that there were. Opponents are always opponents, and play each other, too.
    """
    ours, fixed = sorted(policies), sorted({*opponents} - {*policies})
    pairs = [(later, earlier) for earlier, later in combinations(ours, 2)]
    pairs += product(ours, fixed)
    return pairs + [(later, earlier) for earlier, later in combinations(fixed, 2)]


def games_of(match_ups: Iterable[MatchUp], games_per_role: int) -> list[GameId]:
    """All games, in the order of match-ups, roles and places."""
    return [GameId(*match_up, *where) for match_up in match_ups for where in product((0, 1), range(games_per_role))]


# -- the players -------------------------------------------------------------------------------------------------------


class Seating:
    """Makes the players. ``generate_as`` gives a policy's engine; it is called when the policy is seated."""

    def __init__(
        self, policies: Mapping[str, Policy], settings: Settings, generate_as: Callable[[Policy], Generate]
    ) -> None:
        self._policies, self._settings, self.generate_as = policies, settings, generate_as
        self._read_tokenizer = cache(read_tokenizer)
        self._fixed: dict[str, Player] = {}

    def __call__(self, name: str, game: str) -> Player:
        """The player of a policy's name at a game."""
        policy, settings = self._policies[name], self._settings
        if policy.model is None:
            if name not in self._fixed:  # one player for all games: an endpoint's connections and budget are its own
                self._fixed[name] = make_player(policy.kind, policy.settings, name, run_dir=str(settings.folder))
            return self._fixed[name]
        tokenizer = self.tokenizer(policy)
        player = PolicyPlayer(
            generate=self.generate_as(policy),
            encode=self.encode(policy, game),
            decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
            sampling={**vars(settings.sampling), "max_tokens": settings.max_response_length},
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

    def scorer(self, policy: Policy) -> Callable[[str], Scorer]:
        """Loads a policy's model by transformers; what is returned makes a game's scorer."""
        assert policy.model is not None
        settings, model = self._settings, load(policy.model, policy.adapter, self._settings.engine.dtype)
        ends = sorted(end_tokens(policy.texts or policy.model))
        score = of_model(model, ends, settings.sampling.temperature, settings.max_response_length)
        return lambda game: Scorer(self.tokenizer(policy), self.encode(policy, game), score)

    def check(self, policy: Policy, games: Iterable[str]) -> None:
        """See that a policy with weights can be asked in these games; ValueError: a template does not go with its
        tokenizer's, or the first prompt of a game is too long already."""
        for game in sorted(games):
            state, limit, encode = make(game, 0), self._settings.max_prompt_length, self.encode(policy, game)
            try:
                tokens = len(encode(state.observation(state.current_player), ()))
            except Exception as error:  # chat templates are programs
                told = f"prompt.template={policy.prompt(game)[0]} ({policy.name}): {policy.tokenizer}: {error}"
                raise ValueError(told) from error
            if tokens > limit:
                raise ValueError(
                    f"data.max_prompt_length={limit}: {policy.name} has prompts of {tokens} tokens and more in {game}, "
                    "and prompts are never cut; raise it, take a shorter prompt.template, or leave the game out"
                )


# -- the games ---------------------------------------------------------------------------------------------------------


async def play_games(
    games: Sequence[tuple[GameId, int]], seat: Seating, settings: Settings, ended: Callable[[GameRecord], None]
) -> None:
    """Play the games that are missing, each from the number of its next try on, ``settings.concurrency`` at a time.

    A game in which a player, or the game itself, failed is void, and played again with other randomness:
    ``settings.void_retries`` times, in all starts of the evaluation together. ``ended`` is given each game, void ones
    included.

    Raises:
        NotAsked: an endpoint's budget or quota is spent.
        Exception: whatever else a player raises that is no such failure.
    """
    rules = settings.match_rules

    async def play_until_it_counts(game: tuple[GameId, int]) -> None:
        id_, tries = game
        first, second = (seat(name, id_.game) for name in id_.players)
        for retry in range(tries, settings.void_retries + 1):
            record = await _play(id_, id_.key(settings.seed, settings.randomness, retry), (first, second), rules)
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
