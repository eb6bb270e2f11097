"""What the benchmark of kills finds: games that are lost, or there twice, and the moments of its kills."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.kills import Kill, count, moment
from recipe.spiral.storage.record_folder import RecordFolder
from tests.made import record

BATCH = 4


def write_run(folder: Path, *steps: Sequence[int], in_flight: Sequence[int]) -> Path:
    """A run of so many steps that trained the games of these numbers; its last checkpoint has the others in flight."""
    for step, numbers in enumerate(steps, start=1):
        made = [record(number) for number in numbers]
        for number, one in zip(numbers, made, strict=True):
            one.key = replace(one.key, step=number // BATCH + 1, index=number % BATCH)
        RecordFolder(folder / "games").write("train", step, made)
    place = folder / f"checkpoints/global_step_{len(steps)}"
    place.mkdir(parents=True)
    named = [[number // BATCH + 1, number % BATCH, None] for number in in_flight]
    (place / "spiral.json").write_text(json.dumps({"settings": {"data.train_batch_size": BATCH}, "in_flight": named}))
    (folder / "checkpoints/latest_checkpointed_iteration.txt").write_text(str(len(steps)))
    return folder


@pytest.mark.parametrize(
    ("steps", "in_flight", "found"),
    [
        (([0, 1, 2, 4], [3, 5, 6, 9]), [7, 8, 10, 11], "each once"),
        (([0, 1, 2, 4], [3, 5, 6, 9]), [7, 10, 11], "1 are lost, and 0 there more than once"),
        (([0, 1, 2, 4], [3, 4, 6, 9]), [5, 7, 8], "0 are lost, and 1 there more than once"),
        (([0, 1, 2, 4], [3, 5, 6, 9]), [6, 7, 8], "0 are lost, and 1 there more than once"),
    ],
)
def test_each_game_is_trained_once_or_in_flight(
    tmp_path: Path, steps: Sequence[Sequence[int]], in_flight: Sequence[int], found: str
) -> None:
    assert count(write_run(tmp_path, *steps, in_flight=in_flight)) == found


def test_a_kill_waits_for_its_step() -> None:
    assert Kill(3.0).due(3.1, {}) and not Kill(3.0).due(2.9, {})
    kill = Kill(0.5, step=3)
    assert not kill.due(100.0, {1: 10.0, 2: 14.0})
    lines = {1: 10.0, 2: 14.0, 3: 18.0}
    assert not kill.due(19.9, lines) and kill.due(20.1, lines), "a step takes 4 s"


def test_moments_leave_steps_for_the_other_kills() -> None:
    for others in (0, 1, 5):
        steps = {moment(10, 40, others, start_up=0.0).step for _ in range(3000)}
        assert steps == set(range(11, min(11 + 60 // (others + 2), 40)))
    assert {moment(39, 40, 0, 0.0).step for _ in range(20)} == {39}
    assert any(moment(10, 40, 1, start_up=30.0).step is None for _ in range(200))
