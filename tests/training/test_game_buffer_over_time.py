"""Many steps of an asynchronous run, with games of any length: none is lost, none is there twice, none is too old.

verl's own buffer and the recipe's over a queue in this process; a tick is a look for finished games.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.lab.watching.game_metrics import staleness
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.training.game_buffer import GameBuffer
from recipe.spiral.training.launched import Launch, Launched
from tests.fake_queue import FakeQueue
from tests.made import tokens, turn

STEPS = 12


class Run:
    """An engine that plays games side by side, and a learner that trains a batch after each sample."""

    def __init__(
        self,
        runner: asyncio.Runner,
        queue: FakeQueue,
        seed: int,
        batch: int,
        ahead: int,
        most: int,
        strategy: str,
        longest: int,
        groups: int,
    ) -> None:
        self.runner, self.queue, self.draw = runner, queue, random.Random(seed)
        self.batch, self.longest, self.groups = batch, longest, groups
        self.version, self.launches, self.ticks = 0, 0, 0
        #: By uid: the ticks that are left, and the versions that have written a turn.
        self.playing: dict[str, tuple[int, list[int]]] = {}
        self.launched = Launched()
        self.buffer = GameBuffer(
            trainer_mode="colocate_async",
            trainer_config={},
            max_off_policy_threshold=most + 1,
            max_off_policy_strategy=strategy,
            sampler_kwargs={},
            refill_fn=self.launch,
        )
        self.buffer.launched = self.launched
        self.buffer._wait_for_next_poll = lambda partition, last: self.tick() or last  # type: ignore[method-assign]
        self.launch(ahead * batch)

    def launch(self, count: int) -> None:
        for _ in range(count):
            uid, first = f"uid{self.launches}", self.launches * self.groups
            keys = [GameKey("train", 7, 1, first + game, group=first) for game in range(self.groups)]
            self.launched.add(uid, [Launch(key) for key in keys])
            tag = {"is_prompt": True, "status": "running", "global_steps": self.version + 1}
            self.queue.kv_batch_put([uid], "train", tags=[tag])
            long = self.draw.random() < 0.1
            self.playing[uid] = (self.longest if long else self.draw.randrange(1, 4), [])
            self.launches += 1

    def tick(self) -> None:
        """Each game that is under way has one more turn; those that are over leave their rows and their record."""
        self.ticks += 1
        for uid, (left, versions) in list(self.playing.items()):
            versions.append(self.version)
            if left > 1:
                self.playing[uid] = (left - 1, versions)
                continue
            del self.playing[uid]
            turns = [turn(place % 2, place // 2, tokens=_written(version)) for place, version in enumerate(versions)]
            tags = [{"min_global_steps": version, "max_global_steps": version} for version in versions]
            self.queue.kv_batch_put([f"{uid}_0_{row}" for row in range(len(tags))], "train", tags=tags)
            for key in self.launched.keys(uid):
                record = GameRecord(key, "Nim", ("policy", "policy"), (0, 1), turns)
                self.runner.run(channel.put(record.key, channel.Report([record])))
            self.queue.kv_batch_put([uid], "train", tags=[{"status": "finished"}])

    def step(self) -> tuple[list[GameRecord], list[GameRecord]]:
        """The games that a step trains, and those that were dropped."""
        self.launch(self.batch)
        self.buffer.sample(global_steps=self.version + 1, partition_id="train", batch_size=self.batch)
        trained = channel.take(self.launched.take_keys("train")).records
        self.version += 1
        return trained, self.buffer.take_dropped().discarded


def _written(version: int) -> object:
    made = tokens()
    return type(made)(made.prompt_ids, made.response_ids, made.log_probs, (version, version))


@pytest.mark.parametrize("strategy", ["wait", "drop"])
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**16),
    batch=st.sampled_from([2, 4, 8]),
    ahead=st.integers(0, 3),
    more=st.integers(0, 3),
    longest=st.sampled_from([2, 10, 150]),
    groups=st.sampled_from([1, 2]),
)
def test_every_game_is_trained_once_dropped_once_or_in_flight(
    strategy: str, seed: int, batch: int, ahead: int, more: int, longest: int, groups: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        most = ahead + more
        run = Run(runner, FakeQueue.install(patch), seed, batch, ahead, most, strategy, longest, groups)
        seen: Counter[int] = Counter()
        for number in range(1, STEPS + 1):
            trained, dropped = run.step()
            assert len(trained) == batch * groups
            assert all(staleness(record, number) <= most for record in trained)
            if groups == 1:
                assert all(staleness(record, number) > most for record in dropped)
            assert strategy == "drop" or not dropped
            assert {record.discarded for record in dropped} <= {"stale"}
            seen.update(record.key.index for record in [*trained, *dropped])
            together = Counter(record.key.group for record in trained)
            assert set(together.values()) == {groups}, "games from one start are trained in one step"
        in_flight = {key.index for key in run.launched.of("train")}
        assert set(seen.values()) == {1} and not in_flight & seen.keys()
        assert in_flight | seen.keys() == set(range(run.launches * groups))
        assert len(in_flight) == ahead * batch * groups, "each step launches as many as it takes"
