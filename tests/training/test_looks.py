"""A trainer looks for finished games when all are over, or less often the longer a look takes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recipe.spiral.processes.runtime import FAST, RUNTIME, STOCK
from recipe.spiral.training.game_buffer import LEAST_PAUSE, LONGEST_WAIT, PAUSE, VERLS_PAUSE, GameBuffer, RestingBuffer
from tests import fake_verl
from tests.fake_verl import Verl


def made(kind: type[RestingBuffer]) -> RestingBuffer:
    return kind(
        trainer_mode="sync" if kind is RestingBuffer else "colocate_async",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="wait",
        sampler_kwargs=OmegaConf.create({}),
    )


@pytest.mark.parametrize("kind", [RestingBuffer, GameBuffer])
@pytest.mark.parametrize(
    ("takes", "pause"), [(0.0, LEAST_PAUSE), (0.004, LEAST_PAUSE), (0.1, 0.1 * PAUSE), (60, VERLS_PAUSE)]
)
def test_a_pause_follows_from_the_look_before_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[RestingBuffer], takes: float, pause: float
) -> None:
    now = [0.0]

    def look(buffer: ReplayBuffer) -> None:
        now[0] += takes

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(ReplayBuffer, "_sync_metadata_from_transfer_queue", look)
    buffer = made(kind)
    assert buffer.poll_interval == VERLS_PAUSE
    for _ in range(2):
        buffer._sync_metadata_from_transfer_queue()
        assert buffer.poll_interval == pytest.approx(pause)


@pytest.mark.parametrize(
    ("pause", "takes", "asks", "sleeps"),
    [
        (0.05, None, None, 0.05),  # nothing says when all games are over
        (0.05, 0.0, LONGEST_WAIT, 0.05),  # they were over before the look that did not find them
        (0.05, 0.02, LONGEST_WAIT, 0.03),
        (0.05, 0.5, LONGEST_WAIT, 0.0),
        (1.5, 0.5, 1.5, 1.0),
    ],
)
def test_a_look_follows_the_end_of_all_games_but_not_another_look_at_once(
    monkeypatch: pytest.MonkeyPatch, pause: float, takes: float | None, asks: float | None, sleeps: float
) -> None:
    now = [0.0]
    slept: list[float] = []
    asked: list[float | None] = []

    def wait(seconds: float) -> None:
        asked.append(seconds)
        now[0] += takes or 0.0

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    buffer = made(RestingBuffer)
    buffer.poll_interval = pause
    buffer.wait_until_over = None if takes is None else wait
    assert buffer._wait_for_next_poll("train", 12.0) >= 12.0
    assert slept == [pytest.approx(sleeps)]
    assert asked == ([] if asks is None else [asks])


def test_with_verls_runtime_the_pause_is_verls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME, STOCK)
    monkeypatch.setattr(ReplayBuffer, "_sync_metadata_from_transfer_queue", lambda buffer: None)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    buffer = made(RestingBuffer)
    buffer._sync_metadata_from_transfer_queue()
    buffer._wait_for_next_poll("train", 12.0)
    assert slept == [VERLS_PAUSE]


@pytest.mark.parametrize(
    ("mode", "runtime", "waits"),
    [("sync", FAST, True), ("sync", STOCK, False), ("colocate_async", FAST, False), ("separate_async", FAST, False)],
)
def test_a_trainer_waits_for_all_games_in_sync_mode_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, runtime: str, waits: bool
) -> None:
    """And with our rollout workers: verl's cannot say."""

    class Building(Verl):
        def _build_replay_buffer(self) -> SimpleNamespace:
            return SimpleNamespace(wait_until_over=None)

    monkeypatch.setenv(RUNTIME, runtime)
    waited: list[float] = []
    trainer = fake_verl.trainer(monkeypatch, tmp_path, f"trainer.v1.trainer_mode={mode}", verl=Building)
    wait = trainer._build_replay_buffer().wait_until_over
    assert (wait is not None) == waits
    if waits:
        trainer.agent_loop_manager = SimpleNamespace(wait_until_over=waited.append)
        wait(0.5)
        assert waited == [0.5]
        assert waited == [0.5]
