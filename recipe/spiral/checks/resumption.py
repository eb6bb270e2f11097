"""Checks what a run saves, and whether it can resume from what was saved."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..processes.masking import without_secrets
from ..processes.terminal import note
from ..storage.checkpoints import (
    OWNER,
    REFERENCE,
    STATE_FILE,
    check_intact,
    check_none,
    check_resumable,
    config_of,
    is_of,
    owner_of,
    read_state,
    resumed_from,
    run_before,
    says,
)
from ..storage.disk import read_json
from ..storage.metrics_file import METRICS, MetricsFile, read_metrics
from ..storage.run_config import unresolved
from ..training.kept_settings import KEPT, Kept, kept_settings
from .errors import ConfigError, require, written
from .names import values
from .opponents_play import check_initial
from .verls import has_critic

#: What a checkpoint must hold for a resumed run to equal one that was not interrupted.
CONTENTS = ("model", "optimizer", "extra")
#: What a start makes by itself, each time.
_MADE = {"run_dir", "actor_rollout_ref.rollout.agent.agent_loop_config_path"}


def _saved(config: DictConfig) -> None:
    """Check what a checkpoint holds."""
    for part, contents in product(("actor_rollout_ref.actor", "critic"), ("save_contents", "load_contents")):
        value = OmegaConf.select(config, f"{part}.checkpoint.{contents}")
        lacks = [name for name in CONTENTS if name not in ([value] if isinstance(value, str) else value or [])]
        require(
            not lacks,
            f"{part}.checkpoint.{contents}={value}: lacks {', '.join(lacks)}, without which a run does not go on as if "
            f"it had not been interrupted; take [{', '.join(CONTENTS)}]",
        )


def _resumed(config: DictConfig) -> None:
    """Check that a run can go on from its checkpoint, or begin with the members that it gives its pool."""
    if (checkpoint := _whole(config)) is None:
        return check_initial(config)
    try:
        _same_mode(config, checkpoint)
        _same_settings(config, checkpoint)
        _same_reference(config, checkpoint)
        _pool(config, checkpoint)
    except (TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{checkpoint}: {STATE_FILE} is damaged ({type(error).__name__}: {error})") from error


def _whole(config: DictConfig) -> Path | None:
    """The checkpoint to resume from, which is whole; None: the run begins anew."""
    trainer, critic = config.trainer, has_critic(config)
    own, path = Path(trainer.default_local_dir), trainer.resume_from_path
    ranks = trainer.n_gpus_per_node * trainer.nnodes
    if trainer.resume_mode == "resume_path":
        require(bool(path) and Path(path).is_dir(), f"trainer.resume_from_path={path}: there is no such folder")
        step = Path(path).name.removeprefix("global_step_")
        require(step.isdecimal(), f"trainer.resume_from_path={path}: must be a checkpoint's folder, global_step_<n>")
    checkpoint = resumed_from(config)
    require(
        not critic or checkpoint is None or not checkpoint.is_dir() or says(checkpoint, "critic"),
        f"critic.enable={written(config.critic.enable)} with algorithm.adv_estimator={config.algorithm.adv_estimator}: "
        f"cannot go on from {checkpoint}, which has no critic; take critic.enable=false, or {_anew(config)}",
    )
    if trainer.resume_mode == "auto":
        logged = (entry.step for entry, _ in read_metrics(Path(str(config.run_dir)) / METRICS))
        check_resumable(own, ranks, critic, reached=max(logged, default=0))
    elif checkpoint is not None:
        if not is_of(checkpoint, own):
            check_none(own)
        check_intact(checkpoint, ranks, critic)
    return checkpoint


def finished(config: DictConfig) -> list[str]:
    """Of a run that has no step left: that it is so, and which settings differ from those that it was trained with. []:
    there is something to do, a missing validation after the last step included. Raises ConfigError: its checkpoints are
    another run's."""
    _own_checkpoints(config)
    trainer, run_dir, checkpoint = config.trainer, Path(str(config.run_dir)), resumed_from(config)
    own = checkpoint is not None and is_of(checkpoint, Path(str(trainer.default_local_dir)))
    if checkpoint is None or not own or OmegaConf.select(trainer, "val_only"):
        return []
    step, total = checkpoint.name.removeprefix("global_step_"), trainer.total_training_steps
    try:
        if int(step) < total or (trainer.test_freq > 0 and not MetricsFile(run_dir).validated(int(step))):
            return []
    except (TypeError, ValueError):  # a setting is no number, which the checks say
        return []
    done = (
        f"{run_dir}: the run is done: it has {checkpoint.name}, and trainer.total_training_steps={total}; to go on, "
        "raise that; for a run with other settings, take another run_dir"
    )
    try:
        before, now = config_of(run_dir) or OmegaConf.create(), config.copy()
        if now.actor_rollout_ref.model.path is None:  # an embedded model
            now.actor_rollout_ref.model.path = OmegaConf.select(before, "actor_rollout_ref.model.path")
        asked = unresolved(without_secrets(values(now, resolve=True)))
        was = values(before, resolve=True)
    except OmegaConfBaseException:  # of other versions, or wrong now
        return [done]
    own_value = {name for name, value in values(config, resolve=False).items() if "${" not in str(value)} - _MADE
    return [done] + [
        f"{name}={written(asked[name])}: it was trained with {written(was[name])}"
        for name in sorted(own_value & was.keys() & asked.keys())
        if was[name] != asked[name] and not name.startswith("ray_kwargs.")
    ]


def _own_checkpoints(config: DictConfig) -> None:
    run_dir, own = Path(str(config.run_dir)).resolve(), Path(str(config.trainer.default_local_dir))
    owner = None if own.resolve().is_relative_to(run_dir) else owner_of(own)
    require(
        owner is None or owner.resolve() == run_dir,
        f"trainer.default_local_dir={own}: has the checkpoints of the run in {owner}; give another folder "
        f"(if it is that run, moved: remove {own / OWNER})",
    )


def followed(config: DictConfig) -> list[str]:
    """A line for each setting that has another value from here on than the checkpoint was written with."""
    checkpoint = resumed_from(config)
    changes = [] if checkpoint is None else changed(config, checkpoint)
    return [
        f"{kept.setting}: {written(before)} up to {checkpoint}, {written(now)} from there on"
        for kept, before, now in changes
    ]


def check_same_model(config: DictConfig, part: str = "actor_rollout_ref") -> None:
    """Refuse another model than the one that the checkpoint was trained from. The weights are the checkpoint's: beside
    them the model would count as a reference, as LoRA's base, or in a pool only.

    Where the one of before is not here any more, it may be the same in another place: then there is a note.
    """
    if (checkpoint := resumed_from(config)) is None:
        return
    setting = f"{part}.model.path"
    now, was = str(OmegaConf.select(config, setting)), settings_before(config, checkpoint).get(setting)
    here, there = Path(now).expanduser(), Path(str(was))
    if was is None or was == now or (here.is_dir() and there.is_dir() and here.samefile(there)):
        return
    of_the_hub = not was.startswith(("/", ".", "~"))
    require(
        not (there.is_dir() or (of_the_hub and not here.is_dir())),
        f"{setting}={now}: cannot go on from {checkpoint}, which was trained from {was}; take {setting}={was}, or "
        f"{_anew(config)}",
    )
    note(f"{setting}={now}: the model that {checkpoint} was trained from, {was}, is not here; it must be the same")


def _anew(config: DictConfig) -> str:
    """How to begin anew instead."""
    return "trainer.resume_mode=disable" if config.trainer.resume_mode == "resume_path" else "another run_dir"


def _same_reference(config: DictConfig, checkpoint: Path) -> None:
    uses_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    folder = checkpoint / REFERENCE
    require(
        config.ref_update_freq is not None or not uses_reference or not folder.is_dir(),
        f"ref_update_freq=null: the reference policy would be the initial model again, and {folder} holds a later one; "
        f"to keep that as it is, set ref_update_freq={10**9}; to begin anew with the initial model, remove the folder",
    )


def _pool(config: DictConfig, checkpoint: Path) -> None:
    """Check the members that never leave: the checkpoint's, or where it has no pool those of ``fsp.initial``."""
    pool = read_state(checkpoint).get("league", {}).get("pool")
    if not pool:
        return check_initial(config)
    permanent, size = sum(member.get("permanent", False) for member in pool["members"]), config.fsp.size
    require(
        not config.fsp.enabled or permanent < size,
        f"fsp.size={size}: cannot go on from {checkpoint}, whose pool has {permanent} members that never leave; take "
        f"fsp.size={permanent + 1} or more",
    )


def _same_mode(config: DictConfig, checkpoint: Path) -> None:
    state, mode = {"asynchronous": False, **read_state(checkpoint)}, config.trainer.v1.trainer_mode
    require(
        state["asynchronous"] == (mode != "sync"),
        f"trainer.v1.trainer_mode={mode}: cannot go on from {checkpoint}, "
        + (
            f"which has {len(state.get('in_flight', ()))} games in flight; take colocate_async or separate_async"
            if state["asynchronous"]
            else "of a run in sync mode, whose games are numbered by their steps; take sync"
        )
        + f", or {_anew(config)}",
    )


def _same_settings(config: DictConfig, checkpoint: Path) -> None:
    """Refuse another value of what the checkpoint decides, and cannot be followed."""
    own = is_of(checkpoint, Path(config.trainer.default_local_dir))
    for kept, before, now in changed(config, checkpoint):
        fork = f"go on in another run_dir, with trainer.resume_mode=resume_path trainer.resume_from_path={checkpoint}"
        require(
            kept.followed or not (own or kept.in_forks),
            f"{kept.setting}={written(now)}: cannot go on from {checkpoint}, which was trained with {written(before)}; "
            f"take {kept.setting}={written(before)}, or {_anew(config) if kept.in_forks else fork}",
        )


def settings_before(config: DictConfig, checkpoint: Path) -> dict[str, Any]:
    """The values that a checkpoint was written with: of one of version 0.1.0, as far as its state, its run's config and
    verl's note on LoRA tell."""
    state = read_state(checkpoint)
    if "settings" in state:
        return dict(state["settings"])
    before = config_of(run_before(config, checkpoint))
    known = {} if before is None else kept_settings(before)
    known |= {kept.setting: state[kept.setting] for kept in KEPT if state.get(kept.setting) is not None}
    for part, model in (("actor", "actor_rollout_ref.model"), ("critic", "critic.model")):
        try:
            lora = read_json(checkpoint / part / "lora_train_meta.json")
            known |= {f"{model}.lora_rank": lora["r"], f"{model}.lora_alpha": lora["lora_alpha"]}
        except (OSError, ValueError, KeyError):
            continue
    return known


def changed(config: DictConfig, checkpoint: Path) -> list[tuple[Kept, Any, Any]]:
    """The settings of which a start asks for another value than the checkpoint has, with both."""
    state, before, now = read_state(checkpoint), settings_before(config, checkpoint), kept_settings(config)
    return [
        (kept, before[kept.setting], now[kept.setting])
        for kept in KEPT
        if kept.setting in before
        and kept.setting in now
        and kept.where(config, state)
        and not _same(kept.setting, before[kept.setting], now[kept.setting])
    ]


def _same(setting: str, before: Any, now: Any) -> bool:
    """Opponents may join where games are in flight, and members be more at a time; none of them may leave."""
    if setting == "fsp.members_per_step":
        return bool(before <= now)
    return set(before) <= set(now) if setting == "opponents" else bool(before == now)


PARTS = (_saved, _resumed)
