"""Games in flight through a checkpoint: verl's own trainer stores and launches again, with the recipe's hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.rollouts.dataset import GameDataset
from recipe.spiral.training.game_buffer import GameBuffer
from recipe.spiral.training.in_flight import InFlight
from recipe.spiral.training.launched import Launched, launch
from recipe.spiral.training.sync_buffer import GameLength
from tests.fake_queue import FakeQueue

BATCH = 4
CONFIG = {
    "games": ["TicTacToe", "KuhnPoker"],
    "run_seed": 5,
    "batch_unit": "games",
    "trainer_mode": "colocate_async",
    "train_batch_size": BATCH,
    "gen_batch_size": 1,
    "games_per_start": 1,
}


class League:
    """Seats every game against a member that it has loaded, in the slot where it is now."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.seated: list[GameKey] = []
        self.begun: list[int] = []
        self.in_play: Callable[[], Any] = tuple

    def begin_step(self, step: int) -> None:
        self.begun.append(step)

    def seat(self, key: GameKey, game: str) -> Seat:
        self.seated.append(key)
        return Seat() if key.index % 2 else Seat(Opponent("pool", "step_3"), (0,), True, self.slot)

    def placed(self, key: GameKey, seat: Any) -> Any:
        return replace(seat, slot=self.slot if seat.opponent.name == "step_3" else None)


class Workers:
    """In the agent loops' place: notes the rows that it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def generate_sequences(self, batch: Any) -> None:
        columns = ("uid", "key", "seat", "__rollout_n__", "data_source", "index")
        self.rows += [
            dict(zip(columns, values, strict=True))
            for values in zip(*(list(batch[column]) for column in columns), strict=True)
        ]


class Verl(PPOTrainer):
    """verl's trainer, of which only launching is used."""

    def __init__(self, config: Any) -> None:
        self.config, self.trainer_mode = config, config.trainer.v1.trainer_mode
        dataset = GameDataset("train", None, config.data)
        self.train_dataloader = StatefulDataLoader(dataset, batch_size=1, collate_fn=collate_fn)
        self.train_dataloader_it = None
        self._restored_tq_prompt_count = 0
        self.global_steps, self.total_training_steps = 1, 100
        self.replay_buffer = self._build_replay_buffer()

    def _build_replay_buffer(self) -> Any:
        return GameBuffer(
            trainer_mode="colocate_async",
            trainer_config=OmegaConf.create({}),
            max_off_policy_threshold=5,
            max_off_policy_strategy="wait",
            sampler_kwargs=OmegaConf.create({}),
            refill_fn=self._add_prompts_to_generate,
        )

    def on_step_end(self) -> None: ...

    def on_sample_end(self) -> None: ...


class Launching(Verl):
    """As ``SpiralTrainer`` launches games."""

    launched: Launched
    state: Any

    def _submit_batch_to_rollout(self, batch: Any) -> Any:
        launch(batch, self.launched, self.state.league)
        return super()._submit_batch_to_rollout(batch)


def trainer(workers: Workers, slot: int = 0, in_flight: list[GameKey] | None = None, unit: str = "games") -> Any:
    config = OmegaConf.create(
        {
            "batch_unit": unit,
            "data": {**CONFIG, "batch_unit": unit},
            "skip": {"rollout_tq": {"enable": False}},
            "trainer": {"v1": {"trainer_mode": "colocate_async", "colocate_async": {"num_warmup_batches": 1}}},
        }
    )
    launched = Launched()
    state = SimpleNamespace(league=League(slot), in_flight=in_flight or [], game_length=GameLength(8, 16))
    made = type("Trainer", (InFlight, Launching), {"launched": launched, "state": state})(config)
    made.agent_loop_manager = workers
    return made


def finish(queue: FakeQueue, uid: str) -> None:
    tag = {"min_global_steps": 0, "max_global_steps": 0}
    queue.kv_batch_put([f"{uid}_0_0"], "train", tags=[tag])
    queue.kv_batch_put([uid], "train", tags=[{"status": "finished"}])


def test_games_are_numbered_through_and_have_their_seats_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, workers = FakeQueue.install(monkeypatch), Workers()
    made = trainer(workers)
    made._add_async_warmup_batches(1)
    made._add_prompts_to_generate(BATCH)
    keys = [GameKey(**row["key"]) for row in workers.rows]
    assert [(key.step, key.index) for key in keys] == [(block, place) for block in (1, 2) for place in range(BATCH)]
    assert made.launched.games() == keys == made.state.league.seated
    for row in workers.rows:
        stored = queue.partitions["train"][row["uid"]][0]
        assert stored["seat"] == row["seat"]
    assert made.launched.opponents() == {"step_3"}


def test_a_resumed_run_plays_on_against_the_same_opponents_wherever_they_are_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finished games are not played again, and nobody is seated twice."""
    queue, before = FakeQueue.install(monkeypatch), Workers()
    monkeypatch.setattr("recipe.spiral.training.in_flight.tq", queue)
    made = trainer(before)
    made._add_prompts_to_generate(BATCH)
    over = [row["uid"] for row in before.rows[:2]]
    for uid in over:
        finish(queue, uid)
    queue.kv_batch_put([before.rows[3]["uid"]], "train", tags=[{"status": "running"}])
    queue.kv_batch_put([f"{before.rows[3]['uid']}_0_0"], "train", tags=[{"min_global_steps": 0}])  # half of its rows

    after = Workers()
    again = trainer(after, slot=1, in_flight=made.launched.games())
    again.global_steps = 7
    again._reissue_inflight_prompts()
    assert again.launched.games() == made.launched.games()
    assert [row["uid"] for row in after.rows] == [row["uid"] for row in before.rows[2:]]
    for first, second in zip(before.rows[2:], after.rows, strict=True):
        assert {**first, "seat": {}} == {**second, "seat": {}}
        slot = 1 if first["seat"]["name"] == "step_3" else None
        assert second["seat"] == {**first["seat"], "slot": slot}
    assert again.state.league.seated == [] and again.state.league.begun == [7]
    left = {key for key in queue.partitions["train"] if "_" in key}
    assert left == {f"{uid}_0_0" for uid in over}, "rows of games that were under way are gone"


def test_a_game_that_failed_is_played_again_and_what_was_trained_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A game that fails while a step trains is in its checkpoint, and so is the batch, as verl clears it later."""
    queue, workers = FakeQueue.install(monkeypatch), Workers()
    monkeypatch.setattr("recipe.spiral.training.in_flight.tq", queue)
    made = trainer(workers)
    made._add_prompts_to_generate(BATCH)
    failed, half_failed, over, _ = (row["uid"] for row in workers.rows)
    for uid in (failed, half_failed):
        asyncio.run(channel.put_failure(made.launched.key(uid), "TicTacToe", RuntimeError("the engine is gone")))
    queue.kv_batch_put([failed], "train", tags=[{"status": "failure"}])
    queue.kv_batch_put([half_failed], "train", tags=[{"status": "running"}])  # its status is still on its way
    queue.kv_batch_put([f"{failed}_0_0"], "train", tags=[{"min_global_steps": 0}])  # the other player's
    finish(queue, over)
    asyncio.run(channel.put(made.launched.key(over), channel.Report()))
    queue.kv_batch_put(["trained_0_0", "trained_0_0_padding"], "train", tags=[{"min_global_steps": 0}] * 2)

    after = Workers()
    again = trainer(after, in_flight=made.launched.games())
    again._reissue_inflight_prompts()
    assert [row["uid"] for row in after.rows] == [row["uid"] for row in workers.rows if row["uid"] != over]
    channel.raise_failures(again.launched.games())
    assert set(queue.partitions["games"]) == {str(made.launched.key(over))}, "what is over keeps its record"
    assert queue.partitions["train"][failed][1]["status"] == "pending"
    assert [key for key in queue.partitions["train"] if "_" in key] == [f"{over}_0_0"]


@pytest.mark.parametrize("more", [True, False])
def test_a_checkpoint_that_lacks_games_is_refused(monkeypatch: pytest.MonkeyPatch, more: bool) -> None:
    queue, workers = FakeQueue.install(monkeypatch), Workers()
    monkeypatch.setattr("recipe.spiral.training.in_flight.tq", queue)
    made = trainer(workers)
    made._add_prompts_to_generate(BATCH)
    named = made.launched.games()
    named = [*named, GameKey("train", 5, 9, 0)] if more else named[1:]
    with pytest.raises(RuntimeError, match=r"names \d games in flight and holds 4; 1 differ, the first: train-5-"):
        trainer(Workers(), in_flight=named)._reissue_inflight_prompts()
