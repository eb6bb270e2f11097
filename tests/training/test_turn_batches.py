"""Batches of turns: which games are launched, and which are trained."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from recipe.spiral.players.records import GameRecord
from recipe.spiral.rollouts.channel import Played
from recipe.spiral.training.rows import keep
from recipe.spiral.training.step import without_surplus
from recipe.spiral.training.sync_buffer import GameLength, TurnBuffer
from tests.fake_queue import FakeQueue, rows_of
from tests.made import record, turn
from tests.rollouts.test_dataset import dataset

# -- sampling, through verl's replay buffer ---------------------------------------------------------------------------


class Rollout:
    """Where games would be played: they are over at once, and arrive in any order.

    Args:
        queue: where rows and prompts go.
        lengths: turns of the run's games.
        shuffle: puts a launch's games into the order of their arrival.
    """

    def __init__(self, queue: FakeQueue, lengths: Sequence[int], shuffle: Callable[[list[int]], None]) -> None:
        self.queue, self.lengths, self.shuffle = queue, lengths, shuffle
        self.launches: list[int] = []
        self.records: list[GameRecord] = []

    def launch(self, games: int) -> None:
        first = len(self.records)
        self.launches.append(games)
        for index in range(first, first + games):
            turns = [turn(i % 2, i // 2) for i in range(self.lengths[index])]
            self.records.append(record(index, rewards=(1.0, -1.0), turns=turns))
        order = list(range(first, first + games))
        self.shuffle(order)
        for index in order:
            self._arrive(self.records[index])

    def _arrive(self, game: GameRecord) -> None:
        uid = f"u{game.key.index}"
        for played in game.turns:
            fields = {"prompts": torch.tensor([played.player, played.turn])}
            self.queue.kv_batch_put(
                keys=[f"{uid}_{played.player}_{played.turn}"],
                partition_id="train",
                fields=list_of_dict_to_tensordict([fields]),
                tags=[{"status": "success"}],
            )
        prompt = {"is_prompt": True, "status": "finished", "global_steps": 1}
        self.queue.kv_batch_put(keys=[uid], partition_id="train", tags=[prompt])


def one_step(
    queue: FakeQueue, lengths: Sequence[int], wanted: int, shuffle: Callable[[list[int]], None], length: GameLength
) -> tuple[Rollout, Any, Played, dict[str, float]]:
    rollout = Rollout(queue, lengths, shuffle)
    nothing = OmegaConf.create({})
    buffer = TurnBuffer("sync", nothing, None, "drop", nothing, poll_interval=0.001, refill_fn=rollout.launch)
    buffer.length = length
    batch, metrics = buffer.sample(1, "train", wanted)
    played, keys = without_surplus(Played(rollout.records, []), rows_of(rollout.records), batch.keys, wanted)
    return rollout, keep(batch, keys), played, metrics


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 12), min_size=60, max_size=60), st.integers(1, 40), st.integers(0, 100), st.integers(1, 12)
)
def test_a_step_trains_the_fewest_whole_games_whatever_came_first(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], wanted: int, chance: int, mean: int
) -> None:
    steps = []
    for shuffle in (lambda order: None, random.Random(chance).shuffle):
        queue = FakeQueue.install(monkeypatch)
        length = GameLength(100, 100 * mean)
        rollout, batch, played, metrics = one_step(queue, lengths, wanted, shuffle, length)
        number = next(number for number in range(len(lengths)) if sum(lengths[:number]) >= wanted)
        assert [game.key.index for game in played.records] == list(range(number))
        assert [game.key.index for game in played.discarded] == list(range(number, len(rollout.records)))
        assert {game.discarded for game in played.discarded} <= {"surplus"}
        assert len(batch) == sum(lengths[:number]), "no game is split"
        assert metrics == {"games/rounds": len(rollout.launches)}
        assert sorted(queue.partitions["train"]) == sorted(batch.keys), "nothing of the others stays behind"
        steps.append((rollout.launches, sorted(batch.keys), length))
    assert steps[0] == steps[1]


# -- the dataset's place -----------------------------------------------------------------------------------------------


def test_a_resumed_dataset_goes_on_after_the_last_game_that_was_launched() -> None:
    def loader() -> Any:
        return StatefulDataLoader(dataset(batch_unit="turns"), batch_size=1, drop_last=True, collate_fn=collate_fn)

    whole, stopped, resumed = loader(), loader(), loader()
    straight = iter(whole)
    expected = [next(straight)["index"][0] for _ in range(20)]
    first = iter(stopped)
    before = [next(first)["index"][0] for _ in range(13)]
    resumed.load_state_dict(stopped.state_dict())
    after = iter(resumed)
    assert before + [next(after)["index"][0] for _ in range(7)] == expected == list(range(20))
