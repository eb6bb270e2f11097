"""verl's replay buffer in the asynchronous modes: which games it gives, and what is dropped.

There games count: a game's age is counted from the policy's own turns, those from one start are trained together, and
the record of each game that is dropped is handed over. verl's own counts age from the launch, which an opponent's
slowness or a queue would lengthen, takes games of one age in any order, and replaces a game that failed without a word.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from transfer_queue import KVBatchMeta

from ..players.records import GameRecord
from ..rollouts import channel
from .launched import TRAIN, Launched
from .sync_buffer import NO_ROWS, TURNLESS, WITHOUT_TURNS, RestingBuffer


class GameBuffer(RestingBuffer):
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
        first: whether no batch was trained yet since the start.
        chosen: the uids of the last batch.
    """

    def __init__(self, *, max_off_policy_threshold: int | None, **kwargs: Any) -> None:
        # without verl's threshold, which it compares with the time since the launch
        super().__init__(max_off_policy_threshold=None, **kwargs)
        self.max_staleness = None if max_off_policy_threshold is None else max_off_policy_threshold - 1
        self.launched = Launched()
        self.in_turns = False
        self.ahead = 0.0
        self.first = True
        self.chosen: list[str] = []
        self._dropped: list[GameRecord] = []

    def take_dropped(self) -> list[GameRecord]:
        """The games that were dropped since the last call, all of them as discarded ones."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """The rows of the oldest games, as soon as the learner may go on with them.

        Raises:
            GameFailed: a game ended in an error.
            GameLost: a game's session failed after the game, or before it could say why.
            RuntimeError: no game has a turn.
        """
        if partition_id != TRAIN:
            return super().sample(global_steps, partition_id, batch_size)
        last_message = time.time()
        while not self._ready(global_steps, batch_size):
            last_message = self._wait_for_next_poll(TRAIN, last_message)
        batch = self._materialize_batch(TRAIN, self.chosen, self.partitions[TRAIN])
        if not batch.keys:
            raise RuntimeError(f"the step's games have {NO_ROWS}")
        self.first = False
        return batch, {}

    def _ready(self, step: int, batch_size: int) -> bool:
        """Look for finished games, and choose a batch; whether there is one, and the learner may go on with it."""
        self._sync_metadata_from_transfer_queue()
        self._raise_failure()
        if stale := self._stale(step):
            self._drop(stale)
            self.refill_fn(len(stale))
            return self._ready(step, batch_size)
        if self.in_turns:
            self._launch_turns(batch_size)
        self.chosen = self._choose(step, batch_size)
        if not self.chosen or (self.first and not self._none_before_them_is_played()):
            return False
        return self._others_can_wait(step, batch_size)

    def _raise_failure(self) -> None:
        if failed := sorted(self.failure_keys[TRAIN], key=self.launched.key):
            keys = [launch.key for uid in failed for launch in self.launched[uid]]
            channel.raise_failures(keys)
            raise channel.GameLost(
                f"game {keys[0]}: a session failed, and left no word of the game: verl logged why "
                "(ray_kwargs.ray_init.log_to_driver=true shows it)"
            )

    # -- what is dropped -----------------------------------------------------------------------------------------------

    def _stale(self, step: int) -> list[str]:
        """The games that are over and too old, in the order of their keys; all from one start, where one of them is."""
        if self.max_staleness is None or self.max_off_policy_strategy != "drop":
            return []
        oldest: dict[str, int] = {}
        over = self.finished_keys[TRAIN]
        for key, tag in self.partitions[TRAIN].items():
            if (uid := key.split("_")[0]) in over:  # rows of the others are on their way, and may have no tag yet
                oldest[uid] = min(tag["min_global_steps"], oldest.get(uid, step))
        # games without a turn of the policy's have no age
        stale = [uid for uid, since in oldest.items() if step - 1 - since > self.max_staleness]
        return sorted(stale, key=self.launched.key)

    def _drop(self, stale: list[str]) -> None:
        games = channel.take(launch.key for launch in self.launched.take(stale))
        for record in games.records:
            record.discarded = "stale"
        self._dropped += [*games.records, *games.discarded]
        self._clear_groups(TRAIN, set(stale))

    # -- batches of turns: what is launched ----------------------------------------------------------------------------

    def _launch_turns(self, batch_size: int) -> None:
        """Launch games for the turns that are missing: of the step's batch and those ahead of it, what is over does not
        have, and what is played should not have by the mean length.

        This is asked at each look. So others take the places of short games that are over, and long games do not idle
        the engine. Never more are played than these batches are by the mean length.
        """
        over = self.finished_keys[TRAIN]
        turns = sum(key.split("_")[0] in over for key in self.partitions[TRAIN])
        if not turns and len(over) >= TURNLESS * batch_size:
            raise RuntimeError(f"{len(over)} games {WITHOUT_TURNS}")
        missing = int((self.ahead + 1) * batch_size) - turns
        playing = len(self.pending_keys[TRAIN] | self.running_keys[TRAIN])
        if missing > 0 and (games := self.length.games_for(missing) - playing) > 0:
            self.refill_fn(games)

    # -- what is chosen ------------------------------------------------------------------------------------------------

    def _choose(self, step: int, batch_size: int) -> list[str]:
        """The oldest games that are over, of equal age in the order of their keys; [] where there are too few.

        Age is the time since the launch here: what waited longest goes first.
        """
        over = self._by_age(self.finished_keys[TRAIN])
        if not self.in_turns:
            return [uid for _, uid in over[:batch_size]] if len(over) >= batch_size else []
        turns = Counter(key.split("_")[0] for key in self.partitions[TRAIN])
        chosen: list[str] = []
        total = 0
        for since, uid in over:
            # more games than these may be about to become too old
            due = self._waits and step - since >= (self.max_staleness or 0)
            if total >= batch_size and not due:
                break
            chosen.append(uid)
            total += turns[uid]
        return chosen if total >= batch_size else []

    def _none_before_them_is_played(self) -> bool:
        """Whether all games that were launched before one of the chosen are over, too.

        The first batch after a start waits for this. Its games and those ahead of it begin at once, and the shortest of
        them all would be a batch of the shortest game and the quickest endings. A later batch begins with what the one
        before it left.
        """
        in_order = [uid for _, uid in self._by_age(self.prompt_global_steps[TRAIN])]
        return set(in_order[: len(self.chosen)]) == set(self.chosen)

    def _others_can_wait(self, step: int, batch_size: int) -> bool:
        """Whether the learner may go on with the chosen games: with "wait", not while one that is due is still played,
        nor if later steps could not train all others in time.

        A game that was launched at step s is to be trained by step s + max_staleness. So of the games that were
        launched by s, no more may be left after step t than the steps t + 1 to s + max_staleness train. Where that
        cannot be, as after a change of the settings, it is enough that the oldest games are chosen. (verl's own looks
        at games in flight one by one, and would let more of them reach the bound at one step than it trains.)
        """
        if not self._waits:
            return True
        all_games = self._by_age(self.prompt_global_steps[TRAIN])
        in_order, chosen = [since for since, _ in all_games], set(self.chosen)
        left = Counter(since for since, uid in all_games if uid not in chosen)
        steps_left = {launched: launched + (self.max_staleness or 0) - step for launched in sorted(left)}
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
