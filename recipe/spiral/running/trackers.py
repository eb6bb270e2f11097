"""Where trackers write: into the run's folder, and nowhere else unless a key for it is there."""

from __future__ import annotations

import os
import time
from pathlib import Path


def tracker_environment(run_dir: Path, file: str) -> dict[str, str]:
    """The variables that trackers read, as far as they are not set.

    Args:
        file: how the name of verl's file of metrics begins; its logger would overwrite an earlier one.
    """
    variables = {
        "TENSORBOARD_DIR": str(run_dir / "tensorboard"),
        "WANDB_DIR": str(run_dir),
        "VERL_FILE_LOGGER_PATH": str(run_dir / f"{file}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"),
    }
    if not os.environ.get("WANDB_API_KEY") and not (Path.home() / ".netrc").exists():
        variables["WANDB_MODE"] = "offline"
    return {name: value for name, value in variables.items() if name not in os.environ}
