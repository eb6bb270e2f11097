"""verl's replay buffers: how often they look for finished games, and in the asynchronous modes which games they give.

There games count: a game's age is counted from the policy's own turns, those from one start are trained together, and
the record of each game that is dropped is handed over. verl's own counts age from the launch, which an opponent's
slowness or a queue would lengthen, takes games of one age in any order, and replaces a game that failed without a word.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from ..processes.run_log import say_now
from ..rollouts import channel
from ..rollouts.channel import Played
from .launched import TRAIN, Launched
from .turn_batches import NO_ROWS, WITHOUT_TURNS, GameLength

#: A look is followed by a pause of so many times its length, which is not longer than verl's own.
PAUSE, VERLS_PAUSE = 5.0, 2.0
#: Seconds between two looks that take no time.
LEAST_PAUSE = 0.05
#: So many games for each turn of a batch and not one turn, and nothing will come.
_TURNLESS = 10


class RestingBuffer(ReplayBuffer):
    """verl's replay buffer, which rests between two looks the longer, the longer a look takes. verl builds it for
    ``trainer.v1.sampler.custom_sampler``, in sync mode.

    verl reads the tags of all rows at each look, from a process that also takes the rows of games that end. With a
    thousand rows a look takes some 4 ms, with a hundred thousand half a second.
    """

    def _sync_metadata_from_transfer_queue(self) -> None:
        begin = time.perf_counter()
        super()._sync_metadata_from_transfer_queue()
        self.poll_interval = max(LEAST_PAUSE, min(PAUSE * (time.perf_counter() - begin), VERLS_PAUSE))

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        done = len(self.finished_keys[partition_id]) + len(self.failure_keys[partition_id])
        games = done + len(self.pending_keys[partition_id]) + len(self.running_keys[partition_id])
        say_now("play" if partition_id == TRAIN else "validation", f"{done} of {games} games")
        return float(super()._wait_for_next_poll(partition_id, last_debug_time))


class GameBuffer(RestingBuffer, ReplayBufferAsync):
    """That of the asynchronous modes; the trainer sets the attributes before the first use.

    Args:
        max_off_policy_threshold: how many versions a game may span, the one that trains it included: its staleness may
            be one less. None: any number.
        max_off_policy_strategy: "drop" drops games that are older and launches others for them; "wait" lets the learner
            wait for the oldest games in flight before they become older.

    Attributes:
        launched: the games under way.
        in_turns: whether a batch is so many turns, rather than games.
        ahead: of turns, how many batches are played ahead of the one that is trained next.
        length: of games.
        first: whether no batch was trained yet since the start.
    """

    def __init__(self, *, max_off_policy_threshold: int | None, max_off_policy_strategy: str, **kwargs: Any) -> None:
        # without verl's threshold, which it compares with the time since the launch
        super().__init__(max_off_policy_threshold=None, max_off_policy_strategy=max_off_policy_strategy, **kwargs)
        self.max_staleness = None if max_off_policy_threshold is None else max_off_policy_threshold - 1
        self.launched = Launched()
        self.in_turns = False
        self.ahead = 0.0
        self.length = GameLength()
        self._dropped = Played([], [])
        self.first = True
        self._chosen: list[str] = []

    def take_dropped(self) -> Played:
        """The games that were dropped since the last call, all of them as discarded ones."""
        dropped, self._dropped = self._dropped, Played([], [])
        return dropped

    # -- what is dropped -----------------------------------------------------------------------------------------------

    def _stale_terminal_keys(self, global_steps: int, partition_id: str) -> set[str]:
        """The games that are over and too old; all from one start, where one of them is."""
        if partition_id != TRAIN or self.max_staleness is None or self.max_off_policy_strategy != "drop":
            return set()
        oldest: dict[str, int] = {}
        over = self.finished_keys[TRAIN]
        for key, tag in self.partitions[TRAIN].items():
            if (uid := key.split("_")[0]) in over:  # rows of the others are on their way, and may have no tag yet
                oldest[uid] = min(tag["min_global_steps"], oldest.get(uid, global_steps))
        # games without a turn of the policy's have no age
        return {uid for uid, since in oldest.items() if global_steps - 1 - since > self.max_staleness}

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        """
        Raises:
            GameFailed: a game ended in an error.
            GameLost: a game's session failed after the game, or before it could say why.
        """
        if partition_id == TRAIN and (failed := sorted(self.failure_keys[TRAIN], key=self.launched.key)):
            keys = [key for uid in failed for key in self.launched.keys(uid)]
            channel.raise_failures(keys)
            raise channel.GameLost(
                f"game {keys[0]}: a session failed, and left no word of the game: verl logged why "
                "(ray_kwargs.ray_init.log_to_driver=true shows it)"
            )
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        if stale := sorted(eviction_reasons[0], key=self.launched.key):
            games, before = channel.take(launch.key for launch in self.launched.take_these(stale)), self._dropped
            for record in games.records:
                record.discarded = "stale"
            self._dropped = Played([], [*before.discarded, *games.records, *games.discarded])
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)

    # -- what is trained -----------------------------------------------------------------------------------------------

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable_keys: set[str]
    ) -> bool:
        """verl's own with "wait" looks at games in flight one by one, and would let more of them reach the bound at one
        step than it trains."""
        if partition_id != TRAIN:
            return len(sampleable_keys) >= batch_size
        self._chosen = self._choose(global_steps, batch_size, sampleable_keys)
        if self.in_turns and not self._chosen:
            self._launch_turns(batch_size)
        if not self._chosen or (self.first and not self._none_before_them_is_played()):
            return False
        return self._others_can_wait(global_steps, batch_size)

    # -- batches of turns: what is launched ----------------------------------------------------------------------------

    def launch_turns(self, batch_size: int) -> None:
        """At the beginning of a step: launch what should give its batch of turns and those that are played ahead."""
        self._sync_metadata_from_transfer_queue()
        self._launch_turns(batch_size)

    def _launch_turns(self, batch_size: int) -> None:
        """Launch games for the turns that are missing: of the step's batch and those ahead of it, what is over does not
        have, and what is played should not have by the mean length.

        While a step has too few turns, this is asked at each poll. So others take the places of short games that are
        over, and long games do not idle the engine. Never more are played than these batches are by the mean length.

        Raises:
            RuntimeError: no game has a turn.
        """
        over = self.finished_keys[TRAIN]
        turns = sum(key.split("_")[0] in over for key in self.partitions[TRAIN])
        if not turns and len(over) >= _TURNLESS * batch_size:
            raise RuntimeError(f"{len(over)} games {WITHOUT_TURNS}")
        missing = int((self.ahead + 1) * batch_size) - turns
        playing = len(self.pending_keys[TRAIN] | self.running_keys[TRAIN])
        if missing > 0 and (games := self.length.games_for(missing) - playing) > 0:
            self.refill_fn(games)

    # -- what is chosen ------------------------------------------------------------------------------------------------

    def _choose(self, global_steps: int, batch_size: int, sampleable: set[str]) -> list[str]:
        """The oldest games that are over, of equal age in the order of their keys; [] where there are too few.

        Age is the time since the launch here: what waited longest goes first.
        """
        size = Counter(key.split("_")[0] for key in self.partitions[TRAIN]) if self.in_turns else Counter(sampleable)
        chosen: list[str] = []
        total = 0
        for since, uid in self._by_age(sampleable):
            # where batches are of turns, more games than these may be about to become too old
            due = self.in_turns and self._waits and global_steps - since >= (self.max_staleness or 0)
            if total >= batch_size and not due:
                break
            chosen.append(uid)
            total += size[uid]
        return chosen if total >= batch_size else []

    def _none_before_them_is_played(self) -> bool:
        """Whether all games that were launched before one of the chosen are over, too.

        The first batch after a start waits for this. Its games and those ahead of it begin at once, and the shortest of
        them all would be a batch of the shortest game and the quickest endings. A later batch begins with what the one
        before it left.
        """
        in_order = [uid for _, uid in self._by_age(self.prompt_global_steps[TRAIN])]
        return set(in_order[: len(self._chosen)]) == set(self._chosen)

    def _others_can_wait(self, global_steps: int, batch_size: int) -> bool:
        """Whether the learner may go on with the chosen games: with "wait", not while one that is due is still played,
        nor if later steps could not train all others in time.

        A game that was launched at step s is to be trained by step s + max_staleness. So of the games that were
        launched by s, no more may be left after step t than the steps t + 1 to s + max_staleness train. Where that
        cannot be, as after a change of the settings, it is enough that the oldest games are chosen.
        """
        if not self._waits:
            return True
        all_games = self._by_age(self.prompt_global_steps[TRAIN])
        in_order, chosen = [since for since, _ in all_games], set(self._chosen)
        left = Counter(since for since, uid in all_games if uid not in chosen)
        steps_left = {launched: launched + (self.max_staleness or 0) - global_steps for launched in sorted(left)}
        if self.in_turns:  # what is due and over is chosen, however much it is
            return all(steps > 0 for steps in steps_left.values())
        waiting = at_best = 0
        best = Counter(in_order[batch_size:])
        for launched, steps in steps_left.items():
            waiting, at_best = waiting + left[launched], at_best + best[launched]
            if waiting > max(batch_size * steps, at_best):
                return False
        return True

    @property
    def _waits(self) -> bool:
        return self.max_staleness is not None and self.max_off_policy_strategy == "wait"

    def _by_age(self, uids: Iterable[str]) -> list[tuple[int, str]]:
        """These, oldest first and of equal age in the order of their keys, each with its age: the step at which it was
        launched."""
        launched_at = self.prompt_global_steps[TRAIN]
        return sorted(((launched_at[uid], uid) for uid in uids), key=lambda one: (one[0], self.launched.key(one[1])))

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        selected, partition, launched_at = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        return (self._chosen if partition_id == TRAIN else selected), partition, launched_at

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict[str, Any]]
    ) -> Any:
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        if partition_id == TRAIN:
            self.first = False
            self.launched.sample(selected_prompt_uids)
            if not batch.keys:
                raise RuntimeError(f"the step's games have {NO_ROWS}")
        return batch
