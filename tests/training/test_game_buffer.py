"""Which games the asynchronous modes train, in which order, and what becomes of those that are too old."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from recipe.spiral.lab.watching.game_metrics import staleness
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.training.game_buffer import GameBuffer
from recipe.spiral.training.launched import Launch, Launched
from tests.fake_queue import FakeQueue
from tests.made import tokens, turn

SEED = 7


class Table:
    """Games in a queue, a buffer over them, and how many games it has asked for in place of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int | None = 1, strategy: str = "drop") -> None:
        self.queue = FakeQueue.install(monkeypatch)
        self.refilled: list[int] = []
        self.buffer = GameBuffer(
            trainer_mode="colocate_async",
            trainer_config=OmegaConf.create({}),
            max_off_policy_threshold=None if most is None else most + 1,
            max_off_policy_strategy=strategy,
            sampler_kwargs=OmegaConf.create({}),
            refill_fn=self.refill,
        )
        self.buffer.poll_interval = 0.001
        self.buffer.first = False
        self.buffer.launched = self.launched = Launched()
        self.step = 1

    def refill(self, count: int) -> None:
        self.refilled.append(count)

    def launch(self, index: int, step: int, games: int = 1) -> str:
        """So many games from one start that are launched at a step and are not over."""
        uid = f"uid{index}"
        keys = [GameKey("train", SEED, 1, index + game, group=index if games > 1 else None) for game in range(games)]
        self.launched[uid] = [Launch(key) for key in keys]
        tag = {"is_prompt": True, "status": "running", "global_steps": step}
        self.queue.kv_batch_put([uid], "train", tags=[tag])
        return uid

    def finish(self, uid: str, versions: Sequence[int] = (), status: str = "finished", rewards: float = 1.0) -> None:
        """The game is over, with a row for each version that wrote one."""
        for row, version in enumerate(versions):
            tag = {"min_global_steps": version, "max_global_steps": version}
            self.queue.kv_batch_put([f"{uid}_0_{row}"], "train", tags=[tag])
        if status == "finished":
            for launch in self.launched[uid]:
                record = GameRecord(launch.key, "Nim", ("policy", "policy"), (0, 1), rewards=(rewards, -rewards))
                asyncio.run(channel.put(launch.key, channel.Report([record])))
        self.queue.kv_batch_put([uid], "train", tags=[{"status": status}])

    def sample(self, step: int, size: int) -> list[int]:
        """The indices of the games that a step takes."""
        batch, _ = self.buffer.sample(global_steps=step, partition_id="train", batch_size=size)
        keys = [launch.key for launch in self.launched.take(self.buffer.chosen)]
        starts = {f"uid{key.index if key.group is None else key.group}" for key in keys}
        assert {key.split("_")[0] for key in batch.keys} <= starts
        return [key.index for key in keys]

    @property
    def in_flight(self) -> list[int]:
        return sorted(key.index for key in self.launched.games())


def test_the_longest_in_flight_go_first_and_equals_by_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, most=None)
    uids = {index: table.launch(index, step) for index, step in ((0, 1), (1, 1), (2, 1), (3, 2), (4, 2))}
    for index in (4, 3, 2, 0):
        table.finish(uids[index], [0])
    assert table.sample(2, 3) == [0, 2, 3]
    assert table.in_flight == [1, 4]
    table.finish(uids[1], [0])
    assert table.sample(3, 2) == [1, 4]
    assert table.in_flight == []


def test_the_first_batch_waits_for_all_games_that_were_launched_before_its_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would have the shortest of all games that begin together."""
    table = Table(monkeypatch, most=None)
    table.buffer.first = True
    uids = [table.launch(index, 1) for index in range(8)]
    for index in (0, 2, 3, 5, 6):
        table.finish(uids[index], [0])

    def pause(partition: str, last: float) -> float:
        table.finish(uids[1], [0])
        return last

    monkeypatch.setattr(table.buffer, "_wait_for_next_poll", pause)
    assert table.sample(1, 3) == [0, 1, 2]
    assert table.sample(2, 3) == [3, 5, 6], "later batches take what is over"
    assert table.in_flight == [4, 7]


def test_age_is_that_of_the_policys_oldest_turn_and_not_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """At step 5 the policy is version 4: with one version of staleness, what version 2 wrote is too old."""
    table = Table(monkeypatch, most=1)
    for index, versions in enumerate(([3, 4], [4, 2, 4], [4], [])):
        table.finish(table.launch(index, step=1), versions)
    assert table.sample(5, 3) == [0, 2, 3]
    assert table.refilled == [1] and table.in_flight == []
    dropped = table.buffer.take_dropped()
    assert [(record.key.index, record.discarded) for record in dropped] == [(1, "stale")]
    assert not table.buffer.take_dropped(), "handed over once"
    assert not [key for key in table.queue.partitions["train"] if key.startswith("uid1")]


def test_none_is_dropped_where_the_learner_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, most=2, strategy="wait")
    slow = table.launch(0, step=1)
    for index in range(1, 7):
        table.finish(table.launch(index, step=1 + index // 3), [0])
    waited: list[int] = []

    def pause(partition: str, last: float) -> float:
        waited.append(1)
        table.finish(slow, [0])
        return last

    assert table.sample(2, 2) == [1, 2] and not waited
    monkeypatch.setattr(table.buffer, "_wait_for_next_poll", pause)
    assert table.sample(3, 2) == [0, 3], "it would be too old at step 4"
    assert waited == [1] and not table.refilled and not table.buffer.take_dropped()


def test_games_from_one_state_are_trained_and_dropped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one row of verl's, which is over when all of them are."""
    table = Table(monkeypatch, most=1)
    uids = [table.launch(index, step=1, games=2) for index in (0, 2, 4)]
    table.finish(uids[1], [3, 3])
    table.finish(uids[2], [3, 1])
    assert table.sample(5, 1) == [2, 3]
    assert sorted(record.key.index for record in table.buffer.take_dropped()) == [4, 5]
    assert table.refilled == [1] and table.in_flight == [0, 1]


def test_a_game_that_failed_stops_the_run_with_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch)
    uid = table.launch(0, step=1)
    asyncio.run(channel.put_failure(table.launched.key(uid), "Nim", ValueError("no stones")))
    table.finish(uid, status="failure")
    with pytest.raises(channel.GameFailed, match="no stones"):
        table.sample(1, 1)
    other = Table(monkeypatch)
    other.finish(other.launch(0, step=1), status="failure")
    with pytest.raises(channel.GameLost, match="game train-7-1-0-0: a session failed"):
        other.sample(1, 1)


# -- many steps, with games of any length: none is lost, none is there twice, none is too old --------------------------

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
            self.launched[uid] = [Launch(key) for key in keys]
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
            for launch in self.launched[uid]:
                record = GameRecord(launch.key, "Nim", ("policy", "policy"), (0, 1), turns)
                self.runner.run(channel.put(record.key, channel.Report([record])))
            self.queue.kv_batch_put([uid], "train", tags=[{"status": "finished"}])

    def step(self) -> tuple[list[GameRecord], list[GameRecord]]:
        """The games that a step trains, and those that were dropped."""
        self.launch(self.batch)
        self.buffer.sample(global_steps=self.version + 1, partition_id="train", batch_size=self.batch)
        trained = channel.take(launch.key for launch in self.launched.take(self.buffer.chosen)).records
        self.version += 1
        return trained, self.buffer.take_dropped()


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
        in_flight = {key.index for key in run.launched.games()}
        assert set(seen.values()) == {1} and not in_flight & seen.keys()
        assert in_flight | seen.keys() == set(range(run.launches * groups))
        assert len(in_flight) == ahead * batch * groups, "each step launches as many as it takes"
