"""Which checkpoint a start goes on from, where it was told one (``trainer.resume_mode=resume_path``)."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf


def name_checkpoint(config: DictConfig) -> None:
    """Name the checkpoint as all processes find it, and as verl takes it: whole, and without a slash at the end."""
    if path := OmegaConf.select(config, "trainer.resume_from_path"):
        # not resolved: a link to a checkpoint has the name that counts
        config.trainer.resume_from_path = str(Path(str(path)).expanduser().absolute())
