"""TensorBoard shows the steps of a resumed run once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recipe.spiral.training.trackers import forget_later


def test_tensorboard_shows_nothing_of_steps_that_are_trained_anew(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as ForScripts
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ForThePages
    from verl.utils.tracking import Tracking

    def start(after: int, upto: int, value: float) -> None:
        made = Tracking("project", "name", "tensorboard")
        forget_later(made.logger, after)
        for step in range(after + 1, upto + 1):
            made.log({"loss": value}, step)
        made.finish()
        time.sleep(1.1)  # files are named by the second

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_DIR", str(tmp_path))
        start(0, 13, 1.0)
        start(10, 12, 2.0)
    expected = [*((step, 1.0) for step in range(1, 11)), (11, 2.0), (12, 2.0)]
    (scripts := ForScripts(str(tmp_path))).Reload()
    assert [(point.step, point.value) for point in scripts.Scalars("loss")] == expected
    (pages := ForThePages(str(tmp_path))).Reload()
    assert [(point.step, point.tensor_proto.float_val[0]) for point in pages.Tensors("loss")] == expected
    forget_later({}, 10)
