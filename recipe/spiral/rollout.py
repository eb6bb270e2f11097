"""The game rollout worker: verl's agent loop on one side, a match on the other.

verl opens one session per trained player of a game, in one worker process. The game is played once, by a task that all
its sessions await, and session p returns the turns of its player, one row a turn. An exception reaches every session.
Whatever became of the game also goes into TransferQueue as a record, by a channel of its own, so that the trainer
accounts for games that left no rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1 import AgentLoopManagerTQ

from .games import GameFailure, make
from .match import Rules, play, random_opening
from .opponents.fixed_opponents import find_opponent, make_player
from .players.player import Generate, Generation, Player, PlayerFailure, PolicyPlayer
from .players.prompts import Encode, encoder
from .players.records import MAX_VOIDS, SELF_PLAY, GameRecord, Tokens
from .players.seats import Seat
from .players.seeds import GameKey
from .rollouts import channel
from .rollouts.end_tokens import end_tokens
from .rollouts.schedule import parse_games
from .rollouts.worker import RolloutWorker

Sampling = Mapping[str, Any]


@dataclass
class Table:
    """A game that is being played in this process, and how many sessions are still to collect it."""

    game: asyncio.Task[list[GameRecord]]
    sessions: int


_tables: dict[str, Table] = {}
#: One of each for all games of this process: an endpoint's places are its player's.
_players: dict[str, Player] = {}


class GameManager(AgentLoopManagerTQ):
    """verl's manager of the processes that play, with our workers."""

    agent_loop_workers: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RolloutWorker)

    def use(self, client: Any) -> None:
        """Have all requests go through this client."""
        self.llm_client = client
        ray.get([worker.use.remote(client) for worker in self.agent_loop_workers])

    def generate_sequences(self, prompts: TensorDict) -> None:
        super().generate_sequences(prompts)
        # verl begins with the first worker each time: games that are launched one by one would all be that one's
        next_one = len(prompts) % len(self.agent_loop_workers)
        self.agent_loop_workers = self.agent_loop_workers[next_one:] + self.agent_loop_workers[:next_one]


class PolicyLoop(AgentLoopBase):
    """verl's agent loop, which asks the policy's engine: what games and questions have in common."""

    async def _generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """One response from the policy's engine."""
        output = await self.server_manager.generate(**self._request(prompt_ids, sampling))
        versions = (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"])
        return self._generation(prompt_ids, output, self._limit(sampling), versions, None)

    def _request(self, prompt_ids: list[int], sampling: Sampling) -> dict[str, Any]:
        return {
            "request_id": f"turn-{sampling['seed']}",
            "prompt_ids": prompt_ids,
            "sampling_params": {**sampling, "max_tokens": self._limit(sampling)},
        }

    def _generation(
        self, prompt_ids: list[int], output: Any, limit: int, versions: tuple[int, int] | None, answered_by: str | None
    ) -> Generation:
        """An engine's response; RuntimeError: it has no tokens."""
        token_ids = list(output.token_ids)
        if not token_ids:
            raise RuntimeError(f"the engine returned no tokens (stop reason: {output.stop_reason})")
        # verl reports "completed" for both ways of termination: a response that ends in an end token is not truncated.
        truncated = len(token_ids) >= limit and token_ids[-1] not in self._end_tokens
        return Generation(Tokens(prompt_ids, token_ids, output.log_probs, versions, answered_by), truncated)

    def _decode(self, token_ids: Sequence[int]) -> str:
        """A response's text. transformers looks at each number of a list by itself, and takes an array as it is."""
        return str(self.tokenizer.decode(np.asarray(token_ids, dtype=np.int64), skip_special_tokens=True))

    def _limit(self, sampling: Sampling) -> int:
        """How many tokens a response may have: verl's limit, or a lower one of its own."""
        return min(self._longest, int(sampling.get("max_tokens") or self._longest))

    # One agent loop serves all rows of a worker. Looking into the config takes as long as the rest of a turn.

    @cached_property
    def _longest(self) -> int:
        return int(self.rollout_config.response_length)

    @cached_property
    def _end_tokens(self) -> frozenset[int]:
        return end_tokens(self.config.actor_rollout_ref.model.path, self.tokenizer.eos_token_id)


class GameAgentLoop(PolicyLoop):
    """One session of a game: one player's side."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Play the row's game, or wait for the session that plays it; return this session's turns. A row has the
        dataset's columns, ``uid`` and ``session_id``."""
        uid, session = str(row["uid"]), int(row["session_id"])
        seat = Seat.from_row(row)
        number, player = divmod(session, len(seat.trainable))  # which of the games from the row's start
        name = f"{uid}_{number}"
        if name not in _tables:
            first = GameKey(**dict(row["key"]))
            playing = self._play(replace(first, index=first.index + number), row, seat, sampling_params)
            _tables[name] = Table(asyncio.create_task(playing), len(seat.trainable))
        table = _tables[name]
        try:
            records = await asyncio.shield(table.game)
        finally:
            table.sessions -= 1
            if table.sessions == 0:
                del _tables[name]
        return [turn for record in records for turn in turns_to_rows(record, record.trainable[player])]

    async def _play(self, key: GameKey, row: Mapping[str, Any], seat: Seat, sampling: Sampling) -> list[GameRecord]:
        """Play the game until it counts, and report what became of it; [] if it is given up."""
        try:
            encode = self._encoder(row["prompt"]["template"], row["prompt"]["style"])
            games = await self.games(key, str(row["data_source"]), seat, encode, sampling)
            await channel.put(key, channel.Report(games))  # fails at what it cannot encode
        except Exception as error:
            await channel.put_failure(key, row["data_source"], error)
            raise
        return [record for record in games if record.discarded is None]

    async def games(self, key: GameKey, game: str, seat: Seat, encode: Encode, sampling: Sampling) -> list[GameRecord]:
        """All that is played of a row. A void game, in which a player or the game failed, is played again; so is a
        draw, as ``draw_retry`` says. The last record counts, unless the game is given up."""
        draws = self._draw_retry
        retries = int(draws.max_retries) if draws.enabled and key.split == "train" else 0
        drawn = voids = 0
        tries: list[GameRecord] = []
        while True:
            record, again = await self.attempt(key, game, seat, encode, sampling)
            tries.append(record)
            if record.discarded == "void":
                voids += 1
            elif record.result(0) != "draw" or drawn == retries:
                return tries
            else:
                record.discarded = "draw"
                drawn += 1
            if voids > MAX_VOIDS or not again:
                return tries
            key = key.next_retry()

    async def attempt(
        self, key: GameKey, game: str, seat: Seat, encode: Encode, sampling: Sampling, past: Sequence[str] | None = None
    ) -> tuple[GameRecord, bool]:
        """Play one game on from its ``past``; None: from its random opening. A game that fails is void. And whether
        another attempt may go better."""
        players, again = self._players(seat, encode, sampling), True
        try:
            fresh = make(game, key.game_seed())
            if past is None:
                past = random_opening(key, fresh, self._openings.get(game, 0)) if key.split == "train" else ()
            record = await play(key, game, fresh, players, seat.trainable, self._rules, past=past)
        except (PlayerFailure, GameFailure) as failure:
            names = (players[0].name, players[1].name)
            record = GameRecord(key, game, names, seat.trainable, discarded="void", reason=str(failure))
            again = isinstance(failure, GameFailure) or failure.again
        record.opponent = seat.opponent.kind
        return record, again

    @cached_property
    def _rules(self) -> Rules:
        return Rules.from_config(self.config.rules)

    @cached_property
    def _openings(self) -> dict[str, int]:
        return {share.id: share.random_opening for share in parse_games(self.config.games)}

    @cached_property
    def _draw_retry(self) -> SimpleNamespace:
        return SimpleNamespace(**self.config.draw_retry)

    @cached_property
    def _encoders(self) -> dict[tuple[str, str], Encode]:
        return {}

    def _encoder(self, template: str | None, style: str | None) -> Encode:
        """Of a row's template and style, or of the run's where it has none."""
        asked = template or "", style or ""
        if asked not in self._encoders:
            prompt = self.config.prompt
            template, style = template or prompt.template, style or prompt.style
            self._encoders[asked] = encoder(self.tokenizer, template, style, **self.apply_chat_template_kwargs)
        return self._encoders[asked]

    def _players(self, seat: Seat, encode: Encode, sampling: Sampling) -> tuple[Player, Player]:
        policy = self._model("policy", self._generate, encode, sampling)
        name = seat.opponent.name
        if name == SELF_PLAY:
            return policy, policy
        other: Player
        if seat.model:
            other = self._model(name, self._generate_as(name, seat.slot), encode, sampling)
        else:
            other = fixed_player(name, self.config)
        return (policy, other) if seat.trainable == (0,) else (other, policy)

    def _model(self, name: str, generate: Generate, encode: Encode, sampling: Sampling) -> PolicyPlayer:
        return PolicyPlayer(
            generate=generate,
            encode=encode,
            decode=self._decode,
            sampling=sampling,
            prompt_length=int(self.rollout_config.prompt_length),
            name=name,
        )

    def _generate_as(self, name: str, slot: int | None) -> Generate:
        """The engine of another model, whose answers say whose weights gave them."""

        async def generate(prompt_ids: list[int], sampling: Sampling) -> Generation:
            output = await self.server_manager.generate_as(name, slot, **self._request(prompt_ids, sampling))
            answered_by = str(output.extra_fields["answered_by"])
            return self._generation(prompt_ids, output, self._limit(sampling), None, answered_by)

        return generate


def fixed_player(name: str, config: Any) -> Player:
    """This process's player of that name, by the config's ``opponents``."""
    if name not in _players:
        opponent = find_opponent(name, config.opponents)
        _players[name] = make_player(opponent.kind, opponent.settings, name, run_dir=config.get("run_dir"))
    return _players[name]


def turns_to_rows(record: GameRecord, player: int) -> list[AgentLoopOutput]:
    """A player's turns as verl's rows, each with the game's outcome for that player as its reward."""
    rows = []
    for turn in record.turns_of(player):
        tokens = turn.tokens
        assert tokens is not None, f"turn {turn.turn} of player {player} in game {record.key} has no tokens"
        versions = tokens.weight_versions
        assert versions is not None, "a trainable player's turn is the policy's"
        rows.append(
            AgentLoopOutput(
                prompt_ids=tokens.prompt_ids,
                response_ids=tokens.response_ids,
                response_mask=[1] * len(tokens.response_ids),
                response_logprobs=tokens.log_probs,
                reward_score=record.rewards[player],
                num_turns=len(record.turns),
                metrics=AgentLoopMetrics(),
                extra_fields={
                    "min_global_steps": versions[0],
                    "max_global_steps": versions[1],
                    "reward_extra_info": {},
                },
            )
        )
    return rows
