"""The game rollout worker: verl's agent loop on one side, a match on the other.

verl opens one session per trained player of a game, in one worker process. The game is played once, by a task that all
its sessions await, and session p returns the turns of its player, one row a turn. An exception reaches every session.
Whatever became of the game also goes into TransferQueue as a record, by a channel of its own, so that the trainer
accounts for games that left no rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from . import game_channel
from .games import make
from .match import Rules, play
from .players import Generation, Player, PlayerFailure, PolicyPlayer, RandomPlayer
from .prompts import get_template
from .records import GameRecord
from .schedule import SELF_PLAY
from .seeds import GameKey

#: How often a game is played anew because a player failed (a dead API), before the run gives up.
MAX_VOIDS = 3


@dataclass
class Table:
    """A game that is being played in this process, and how many sessions are still to collect it."""

    game: asyncio.Task[GameRecord]
    sessions: int


_tables: dict[str, Table] = {}


class GameAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """One session of a game: one player's side."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Play the row's game, or wait for the session that plays it; return this session's turns.

        Args:
            sampling_params: verl's, for training or for validation.
            row: the dataset's columns, ``uid`` and ``session_id``.
        """
        uid, session = str(row["uid"]), int(row["session_id"])
        learners = tuple(int(player) for player in row["learners"])
        if uid not in _tables:
            _tables[uid] = Table(asyncio.create_task(self._play(row, learners, sampling_params)), len(learners))
        table = _tables[uid]
        try:
            record = await asyncio.shield(table.game)
        finally:
            table.sessions -= 1
            if table.sessions == 0:
                del _tables[uid]
        return turns_to_rows(record, learners[session])

    async def _play(
        self, row: Mapping[str, Any], learners: tuple[int, ...], sampling_params: Mapping[str, Any]
    ) -> GameRecord:
        """Play the game to an outcome that counts, and hand its record over, also if it fails."""
        key = GameKey(**dict(row["key"]))
        discarded: list[GameRecord] = []
        try:
            record = await self._play_until_it_counts(key, row, learners, sampling_params, discarded)
        except Exception as error:
            await game_channel.put_failure(key, row["game"], error)
            raise
        await game_channel.put(record, discarded)
        return record

    async def _play_until_it_counts(
        self,
        key: GameKey,
        row: Mapping[str, Any],
        learners: tuple[int, ...],
        sampling_params: Mapping[str, Any],
        discarded: list[GameRecord],
    ) -> GameRecord:
        game_id = str(row["game"])
        policy = self._policy(sampling_params, row["template"] or self.config.prompt.template)
        players = _seat(policy, str(row["opponent"]), learners)
        names = (players[0].name, players[1].name)
        rules = Rules.from_config(self.config.rules)
        while True:
            try:
                return await play(key, game_id, make(game_id, key.game_seed()), players, learners, rules)
            except PlayerFailure:
                if len(discarded) == MAX_VOIDS:
                    raise
                discarded.append(GameRecord(key, game_id, names, learners, discarded="void"))
                key = key.next_retry()

    def _policy(self, sampling_params: Mapping[str, Any], template_name: str) -> PolicyPlayer:
        template = get_template(template_name)
        chat_template_kwargs = dict(self.apply_chat_template_kwargs)
        return PolicyPlayer(
            generate=self._generate,
            encode=lambda observation: template.encode(self.tokenizer, observation, **chat_template_kwargs),
            decode=lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)),
            sampling=sampling_params,
            prompt_length=int(self.rollout_config.prompt_length),
        )

    async def _generate(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        """One response from verl's engine.

        Raises:
            RuntimeError: the engine gave none.
        """
        limit = int(self.rollout_config.response_length)
        output = await self.server_manager.generate(
            request_id=f"turn-{sampling['seed']}",
            prompt_ids=prompt_ids,
            sampling_params={**sampling, "max_tokens": limit},
        )
        token_ids = list(output.token_ids)
        if not token_ids:
            raise RuntimeError(f"the engine returned no tokens (stop reason: {output.stop_reason})")
        # verl reports "completed" for both ways of ending: a response that ends in an end token was not cut off.
        ends = end_tokens(self.config.actor_rollout_ref.model.path, self.tokenizer.eos_token_id)
        cut_off = len(token_ids) >= limit and token_ids[-1] not in ends
        weights = (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"])
        return Generation(token_ids, output.log_probs, cut_off, weights)


def _seat(policy: Player, opponent: str, learners: tuple[int, ...]) -> tuple[Player, Player]:
    if opponent == SELF_PLAY:
        return policy, policy
    others: dict[str, Player] = {"random": RandomPlayer()}
    other = others[opponent]
    return (policy, other) if learners == (0,) else (other, policy)


@cache
def end_tokens(model_path: str, eos_token_id: int) -> frozenset[int]:
    """The tokens at which the engine ends a response: the tokenizer's, and those of the generation config if any."""
    from transformers import GenerationConfig

    try:
        ends = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:  # the model comes without one
        ends = None
    more = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return frozenset([eos_token_id, *more])


def turns_to_rows(record: GameRecord, player: int) -> list[AgentLoopOutput]:
    """A player's turns as verl's rows, each with the game's outcome for that player as its reward."""
    rows = []
    for turn in record.turns_of(player):
        tokens = turn.tokens
        assert tokens is not None, f"turn {turn.turn} of player {player} in game {record.key} has no tokens"
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
                    "key": record.key.to_dict(),
                    "player": player,
                    "turn": turn.turn,
                    "min_global_steps": tokens.weights[0],
                    "max_global_steps": tokens.weights[1],
                    "reward_extra_info": {},
                },
            )
        )
    return rows
