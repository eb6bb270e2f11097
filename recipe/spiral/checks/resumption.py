"""Checks what a run saves, and whether it can go on from what was saved."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ..config import require, written
from ..storage.checkpoints import REFERENCE, config_before, is_of, kept_settings, read_whole, resumed_from
from ..storage.run_files import MetricsFile, note_changes
from .combinations import check_initial

#: What a checkpoint must hold for a resumed run to equal one that was not interrupted.
CONTENTS = ("model", "optimizer", "extra")
_MODEL = "actor_rollout_ref.model.path"


def check_contents(config: DictConfig) -> None:
    """Check what a checkpoint holds."""
    for part, contents in product(("actor_rollout_ref.actor", "critic"), ("save_contents", "load_contents")):
        value = OmegaConf.select(config, f"{part}.checkpoint.{contents}")
        lacks = [name for name in CONTENTS if name not in ([value] if isinstance(value, str) else value or [])]
        require(
            not lacks,
            f"{part}.checkpoint.{contents}={value}: lacks {', '.join(lacks)}, without which a run does not go on as if "
            f"it had not been interrupted; take [{', '.join(CONTENTS)}]",
        )


def check_resumption(config: DictConfig) -> None:
    """Check that a run can go on from its checkpoint, or begin with the members that it gives its pool."""
    if (checkpoint := resumed_from(config)) is None:
        check_initial(config)
        return
    state = read_whole(checkpoint)
    trainer, run_dir = config.trainer, Path(str(config.run_dir)).resolve()
    ranks, own = trainer.n_gpus_per_node * trainer.nnodes, Path(trainer.default_local_dir).resolve()
    require(
        trainer.resume_mode != "auto" or own.is_relative_to(run_dir) or Path(state["run_dir"]) == run_dir,
        f"trainer.default_local_dir={own}: has the checkpoints of the run in {state['run_dir']}; give another folder, "
        f"or begin with them by trainer.resume_mode=resume_path trainer.resume_from_path={checkpoint}",
    )
    require(
        state["ranks"] == ranks,
        f"trainer.n_gpus_per_node x trainer.nnodes={ranks}: cannot go on from {checkpoint}, which was written by "
        f"{state['ranks']} rank(s)",
    )
    for name, now in kept_settings(config).items():
        was = state["settings"][name]
        require(
            now == was or (name == _MODEL and _moved(now, was)),
            f"{name}={written(now)}: cannot go on from {checkpoint}, which was trained with {written(was)}; take that, "
            "or begin anew with another run_dir",
        )
    uses_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    require(
        config.ref_update_freq is not None or not uses_reference or not (checkpoint / REFERENCE).is_dir(),
        f"ref_update_freq=null: the reference policy would be the initial model again, and {checkpoint / REFERENCE} "
        f"holds a later one; to keep that as it is, set ref_update_freq={10**9}",
    )
    if not state["league"].get("pool"):
        check_initial(config)


def _moved(now: str, was: str) -> bool:
    """Whether a model may be the one that a checkpoint was trained from, in another place. The weights are the
    checkpoint's: beside them another model would count as a reference, as LoRA's base, or in a pool only."""
    here, there = Path(now).expanduser(), Path(was)
    return here.is_dir() and (not there.is_dir() or here.samefile(there))


def finished(config: DictConfig) -> str:
    """That a run has no step left, in a line; "": there is something to do, a missing validation after the last step
    included."""
    trainer, run_dir, checkpoint = config.trainer, Path(str(config.run_dir)), resumed_from(config)
    own = checkpoint is not None and is_of(checkpoint, Path(str(trainer.default_local_dir)))
    total = trainer.total_training_steps
    if checkpoint is None or total is None or not own or OmegaConf.select(trainer, "val_only"):
        return ""
    step = int(checkpoint.name.removeprefix("global_step_"))
    if step < total or (trainer.test_freq > 0 and step == total and not MetricsFile(run_dir).validated(step)):
        return ""
    return f"{run_dir}: the run is done: it has step {step}; to go on, raise trainer.total_training_steps={total}"


def followed(config: DictConfig, note: bool = False) -> list[str]:
    """A line for each setting that has another value from here on than at the last start. With ``note`` they are also
    written into the run's folder."""
    checkpoint, run_dir = resumed_from(config), Path(str(config.run_dir))
    before = None if checkpoint is None else config_before(config, checkpoint)
    if checkpoint is None or before is None:
        return []
    step = int(checkpoint.name.removeprefix("global_step_"))
    changed = note_changes(run_dir, step, before, config, note)
    return [
        f"{name}: {written(was)} up to step {step}, {written(now)} from there on"
        for name, (was, now) in changed.items()
    ]
