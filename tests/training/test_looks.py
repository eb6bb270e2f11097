"""A trainer whose looks for finished games take long looks less often."""

from __future__ import annotations

import time

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recipe.spiral.training.game_buffer import PAUSE, VERLS_PAUSE, GameBuffer, RestingBuffer


@pytest.mark.parametrize("kind", [RestingBuffer, GameBuffer])
@pytest.mark.parametrize(("takes", "pause"), [(0.0, 0.05), (0.004, 0.05), (0.1, 0.1 * PAUSE), (60.0, VERLS_PAUSE)])
def test_a_pause_follows_from_the_look_before_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[RestingBuffer], takes: float, pause: float
) -> None:
    now = [0.0]

    def look(buffer: ReplayBuffer) -> None:
        now[0] += takes

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(ReplayBuffer, "_sync_metadata_from_transfer_queue", look)
    mode = "sync" if kind is RestingBuffer else "colocate_async"
    buffer = kind(
        trainer_mode=mode,
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="wait",
        sampler_kwargs=OmegaConf.create({}),
    )
    assert buffer.poll_interval == VERLS_PAUSE
    buffer.least_pause = 0.05
    for _ in range(2):
        buffer._sync_metadata_from_transfer_queue()
        assert buffer.poll_interval == pytest.approx(pause)
