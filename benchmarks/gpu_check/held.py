"""The games of a run that waits before its first step, so that runs can start side by side and play one by one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from recipe.spiral.rollouts import dataset

from .programs import HELD, ready


class GameDataset(dataset.GameDataset):
    """The trainer asks for its first game when everything has started."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        file = Path(os.environ[HELD])
        ready(file).touch()
        while not file.exists():
            time.sleep(0.05)
        return super().__getitem__(index)
