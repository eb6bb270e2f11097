"""How the trackers of ``trainer.logger`` go on with a run that they have."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..processes.launch import tracked


def going_on(tracking: Callable[..., Any], run_dir: Path) -> Callable[..., Any]:
    """verl's ``Tracking``, whose MLflow and Trackio go on with what they have of the run in this folder. The others are
    told by the environment (processes/launch.py)."""

    def opened(project_name: str, experiment_name: str, default_backend: Any, config: Any = None) -> Any:
        named = {"project_name": project_name, "experiment_name": experiment_name}
        backends = [default_backend] if isinstance(default_backend, str) else list(default_backend)
        known = tracked(run_dir)
        if "trackio" in backends and known.get("trackio") == experiment_name:
            import trackio

            trackio.init(project=project_name, name=experiment_name, config=config, resume="allow")
        again = "mlflow" in backends and "mlflow" in known
        if again:
            os.environ.setdefault("MLFLOW_RUN_ID", known["mlflow"])
            backends.remove("mlflow")
        trackers = tracking(**named, default_backend=backends, config=config)
        if again:  # without the config, as MLflow refuses another value of a parameter that it has
            mlflow = tracking(**named, default_backend=["mlflow"])
            trackers.logger |= mlflow.logger
            mlflow.logger = {}  # otherwise it would end the run when it is collected
        elif "mlflow" in trackers.logger:
            tracked(run_dir, mlflow=importlib.import_module("mlflow").active_run().info.run_id)
        if "trackio" in trackers.logger:
            tracked(run_dir, trackio=experiment_name)
        return trackers

    return opened


def forget_later(trackers: Mapping[str, Any], step: int) -> None:
    """Let TensorBoard show nothing of steps after ``step`` that was logged so far: they are trained anew."""
    if step > 0 and (tensorboard := trackers.get("tensorboard")) is not None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        for _ in range(2):  # the first one that TensorBoard reads is no restart to it
            tensorboard.writer.file_writer.add_event(Event(session_log=SessionLog(status=SessionLog.START)), step + 1)
