"""Where a run keeps what is looked for in its folder, for programs that have no config of it."""

from __future__ import annotations

from pathlib import Path

from .checkpoints import config_of
from .run_config import setting


def folder_of(run_dir: Path) -> Path:
    """The folder of a run's checkpoints, by its config: ``trainer.default_local_dir``.

    If the run's folder was moved, a folder inside it moved along. Without a config it is ``checkpoints`` in the run's.
    """
    config = config_of(run_dir)
    written, before = setting(config, "trainer.default_local_dir"), setting(config, "run_dir")
    if not isinstance(written, str):
        return run_dir / "checkpoints"
    within = isinstance(before, str) and Path(written).is_relative_to(before)
    return run_dir / Path(written).relative_to(before) if within else Path(written)
