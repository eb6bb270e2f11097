"""A trainer looks for finished games less often, the longer a look takes."""

from __future__ import annotations

import time

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recipe.spiral.training.game_buffer import LEAST_PAUSE, PAUSE, VERLS_PAUSE, GameBuffer, RestingBuffer


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
