"""A run that is held says that it is ready, and gets its first game when it may go."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from verl.utils.import_utils import load_extern_object

from benchmarks.gpu_check.programs import HELD, HELD_GAMES, ready
from benchmarks.gpu_check.settings import composed
from recipe.spiral.rollouts.dataset import GameDataset


def test_a_held_run_waits_for_its_first_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = composed("spiral_trainer", "hardware=cpu", *HELD_GAMES).data
    made = load_extern_object(data.custom_cls.path, data.custom_cls.name)
    file = tmp_path / "run.go"
    monkeypatch.setenv(HELD, str(file))
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(lambda: made("train", None, data)[0])
        end = time.monotonic() + 20
        while not ready(file).exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        waited = not asked.done()
        file.touch()
        assert asked.result(20) == GameDataset("train", None, data)[0]
    assert waited and ready(file).exists()
