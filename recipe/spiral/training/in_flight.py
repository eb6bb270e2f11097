"""What SpiralTrainer has besides in the asynchronous modes, where games are played while others are trained.

A step trains games that were launched in this step or in earlier ones. The others stay in flight; a checkpoint holds
them, and a resumed run plays on: those that were over are trained as they are, the others are played again from their
keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

from ..rollouts import channel
from ..rollouts.channel import Played
from ..workers.engine.client import ResumingClient
from .game_buffer import GameBuffer
from .launched import TRAIN, Launch, Launched, launches
from .run_state import RunState
from .step import Step

#: The base of what stands before a trainer class of verl's, whose methods it calls.
Mixin: Any = object


class InFlight(Mixin):
    """A mixin before ``SpiralTrainer``, over verl's trainer of an asynchronous mode."""

    state: RunState
    launched: Launched
    current: Step
    replay_buffer: GameBuffer
    client = ResumingClient

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.state.league.in_play = self.launched.opponents
        buffer, trainer = self.replay_buffer, config.trainer.v1
        buffer.launched = self.launched
        buffer.in_turns = config.batch_unit == "turns"
        buffer.ahead = float(trainer[trainer.trainer_mode].num_warmup_batches)

    @property
    def _done(self) -> bool:
        """Whether the checkpoint that the run goes on from is that of its last step: no game is needed any more."""
        return self.global_steps > self.total_training_steps

    def _add_async_warmup_batches(self, num_warmup_batches: float) -> None:
        """The games that are played ahead; of turns, the buffer launches them."""
        if not self.replay_buffer.in_turns and not self._done:
            super()._add_async_warmup_batches(num_warmup_batches)

    # -- accounting ----------------------------------------------------------------------------------------------------

    def _played(self) -> tuple[Played, list[Launch]]:
        """The sampled games, and as discarded ones those that were dropped."""
        launches = self.launched.take(self.replay_buffer.chosen)
        sampled = channel.take(launch.key for launch in launches)
        dropped = self.replay_buffer.take_dropped()
        return Played(sampled.records, sorted([*sampled.discarded, *dropped], key=lambda record: record.key)), launches

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        metrics["async/in_flight"] = float(len(self.launched.games()))  # neither trained nor dropped
        metrics["async/dropped"] = metrics["games/discarded/stale"]  # too old
        if self.replay_buffer.in_turns:
            self.state.game_length.add(len(self.current.records), len(self.current.rows))
        return batch

    # -- going on from a checkpoint ------------------------------------------------------------------------------------

    def _reissue_inflight_prompts(self, *args: Any, **kwargs: Any) -> Any:
        """Account for the games that a checkpoint holds; then verl launches those again that were not over.

        Raises:
            RuntimeError: they are not those that the checkpoint's state names.
        """
        if self._done:
            return 0
        league = self.state.league
        tags = (tq.kv_list(TRAIN) or {}).get(TRAIN, {})
        prompts = [uid for uid, tag in tags.items() if tag.get("is_prompt")]
        if prompts:
            self.launched.update(launches(tq.kv_batch_get(keys=prompts, partition_id=TRAIN)))
        stored, named = {*self.launched.games()}, {*self.state.in_flight}
        if stored != named:
            lost = sorted(stored ^ named)
            raise RuntimeError(
                f"the checkpoint names {len(named)} games in flight and holds {len(stored)}; {len(lost)} differ, the "
                f"first: {lost[0]}; go on from an older checkpoint (trainer.resume_mode=resume_path)"
            )
        # a pool's member that is to answer them must be loaded before they are launched, and may be elsewhere now
        league.begin_step(self.global_steps)
        if prompts:
            first = [self.launched[uid][0] for uid in prompts]
            # slots may be others
            seats = [league.placed(launch.key, launch.seat).columns()["seat"] for launch in first]
            fields = TensorDict({}, batch_size=len(prompts))
            assign_non_tensor_stack(fields, "seat", seats)
            tq.kv_batch_put(keys=prompts, partition_id=TRAIN, fields=fields)
        self._clean_up(tags, prompts)
        return super()._reissue_inflight_prompts(*args, **kwargs)

    def _clean_up(self, tags: Mapping[str, Mapping[str, Any]], prompts: Sequence[str]) -> None:
        """Leave of a checkpoint's queue what is over, and what verl launches again. ``tags`` are of all its keys,
        ``prompts`` those of games.

        verl saves before it clears the batch that it has trained, and does not launch a game again that has failed: its
        error would end every run that goes on from there.
        """
        games = {*prompts}
        if trained := [key for key in tags if key.split("_")[0] not in games]:
            tq.kv_clear(keys=trained, partition_id=TRAIN)
        if again := [uid for uid in prompts if tags[uid]["status"] != "finished"]:
            channel.forget(launch.key for uid in again for launch in self.launched[uid])
            tq.kv_batch_put(keys=again, partition_id=TRAIN, tags=[{"status": "pending"} for _ in again])
