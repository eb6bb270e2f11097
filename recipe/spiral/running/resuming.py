"""Which checkpoint a start goes on from, where it was told one (``trainer.resume_mode=resume_path``)."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ..storage.checkpoints import TRACKER, is_of


def choose_checkpoint(config: DictConfig) -> None:
    """Name the checkpoint as all processes find it, and as verl takes it: whole, and without a slash at the end.

    A run that began at a checkpoint of another one, and has saved some of its own since, goes on from the last of them,
    and says so: the same command goes on with a run.
    """
    if not (path := OmegaConf.select(config, "trainer.resume_from_path")):
        return
    trainer = config.trainer
    checkpoint = Path(str(path)).expanduser().absolute()  # not resolved: a link to one has the name that counts
    trainer.resume_from_path = str(checkpoint)
    own = Path(trainer.default_local_dir)
    if trainer.resume_mode == "resume_path" and (own / TRACKER).exists() and not is_of(checkpoint, own):
        trainer.resume_mode = "auto"
        print(
            f"trainer.resume_from_path={checkpoint}: the run has checkpoints of its own in {own}, and goes on from the "
            "last of them; to begin there once more, take another run_dir",
            flush=True,
        )
