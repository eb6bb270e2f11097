"""What a start settles in its config: the checkpoint that it goes on from, and what follows from its precision."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ..checks.settle import rollout_is
from ..storage.checkpoints import TRACKER, is_of
from .terminal import note

#: verl's and vLLM's names of full precision.
_FULL = ("float32", "fp32", "float", "32")


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


def reduced_precision(config: DictConfig) -> str | None:
    """The type in which the engine or the trainer computes, if it is not float32; ``auto`` may be any."""
    mixed = config.actor_rollout_ref.actor.fsdp_config.get("mixed_precision") or {}
    types = (str(config.actor_rollout_ref.rollout.dtype), str(mixed.get("param_dtype", "bf16")))
    return next((name for name in types if name not in _FULL), None)


def follow_precision(config: DictConfig) -> None:
    """Switch ``bypass_mode`` off where the engine's log-probabilities are not the trainer's, and say what a preset's
    results were measured in."""
    computed, device = reduced_precision(config), config.trainer.device
    correction = config.algorithm.rollout_correction
    # On a GPU vLLM's attention multiplies float32 in TF32, which has 10 bits after the point.
    if correction.bypass_mode and (computed is not None or device != "cpu"):
        where = f"on {device}" if computed is None else f"in {computed}"
        correction.bypass_mode, correction.rollout_is = False, "auto"
        correction.rollout_is = rollout_is(config)
        note(
            f"algorithm.rollout_correction.bypass_mode=true is switched off: {where} the engine's "
            "log-probabilities are not the trainer's"
        )
    if computed is not None and config.measured_in is not None:
        note(f"this preset's results were measured in {config.measured_in}; this run computes in {computed}")
