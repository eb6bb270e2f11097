"""What TensorBoard is told when a run goes on from a checkpoint. (W&B: ``processes/launch.py``.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def forget_later(trackers: Mapping[str, Any], step: int) -> None:
    """Let TensorBoard show nothing of steps after ``step`` that was logged so far: they are trained anew."""
    if step > 0 and (tensorboard := trackers.get("tensorboard")) is not None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        for _ in range(2):  # the first one that TensorBoard reads is no restart to it
            tensorboard.writer.file_writer.add_event(Event(session_log=SessionLog(status=SessionLog.START)), step + 1)
