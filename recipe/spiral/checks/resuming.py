"""Checks what a run saves, and whether it can resume from what was saved."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ..rollouts.schedule import parse_games, plays_games, written
from ..storage.checkpoints import REFERENCE, check_intact, check_resumable, is_of, read_state
from .errors import require
from .opponents_play import check_initial
from .verls import has_critic

#: What a checkpoint must hold for a resumed run to equal one that was not interrupted.
CONTENTS = ("model", "optimizer", "extra")


def _saved(config: DictConfig) -> None:
    """Check what a checkpoint holds, and that it is kept."""
    require(
        not config.trainer.del_local_ckpt_after_load,
        "trainer.del_local_ckpt_after_load=true: must be false; a run that is interrupted again before its next "
        "checkpoint goes on from the same one",
    )
    for part in ("actor_rollout_ref.actor", "critic"):
        settings = f"{part}.checkpoint"
        require(
            not OmegaConf.select(config, f"{settings}.async_save", default=False),
            f"{settings}.async_save=true: must be false; a checkpoint is named when it is written",
        )
        for contents in ("save_contents", "load_contents"):
            value = OmegaConf.select(config, f"{settings}.{contents}")
            lacks = [name for name in CONTENTS if name not in ([value] if isinstance(value, str) else value or [])]
            require(
                not lacks,
                f"{settings}.{contents}={value}: lacks {', '.join(lacks)}, without which a run does not go on as if it "
                f"had not been interrupted; take [{', '.join(CONTENTS)}]",
            )


def _resumed(config: DictConfig) -> None:
    """Check that a run can go on from its checkpoint, or begin with the members that it gives its pool."""
    checkpoint = _whole(config)
    if checkpoint is not None:
        _same_games(config, checkpoint)
        _same_reference(config, checkpoint)
    _pool(config, checkpoint)


def _whole(config: DictConfig) -> Path | None:
    """The checkpoint to resume from, which is whole; None: the run begins anew."""
    ranks, critic = config.trainer.n_gpus_per_node * config.trainer.nnodes, has_critic(config)
    mode, path = config.trainer.resume_mode, config.trainer.resume_from_path
    if mode == "auto":
        latest = check_resumable(Path(config.trainer.default_local_dir), ranks, critic)
        return None if latest is None else Path(config.trainer.default_local_dir) / f"global_step_{latest}"
    if mode == "resume_path":
        require(bool(path) and Path(path).is_dir(), f"trainer.resume_from_path={path}: there is no such folder")
        step = Path(path).name.removeprefix("global_step_")
        require(step.isdecimal(), f"trainer.resume_from_path={path}: must be a checkpoint's folder, global_step_<n>")
        check_intact(Path(path), ranks, critic)
        return Path(path)
    return None


def _same_reference(config: DictConfig, checkpoint: Path) -> None:
    uses_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    folder = checkpoint / REFERENCE
    require(
        config.ref_update_freq is not None or not uses_reference or not folder.is_dir(),
        f"ref_update_freq=null: the reference policy would be the initial model again, and {folder} holds a later one; "
        f"to keep that as it is, set ref_update_freq={10**9}; to begin anew with the initial model, remove the folder",
    )


def _pool(config: DictConfig, checkpoint: Path | None) -> None:
    """Check the members that never leave: the checkpoint's, or where it has no pool those of ``fsp.initial``."""
    pool = None if checkpoint is None else read_state(checkpoint).get("league", {}).get("pool")
    if not pool:
        return check_initial(config)
    permanent, size = sum(member.get("permanent", False) for member in pool["members"]), config.fsp.size
    require(
        not config.fsp.enabled or permanent < size,
        f"fsp.size={size}: cannot go on from {checkpoint}, whose pool has {permanent} members that never leave; take "
        f"fsp.size={permanent + 1} or more",
    )


def _same_games(config: DictConfig, checkpoint: Path) -> None:
    """Check that the settings which number a run's games are unchanged: verl saves the dataset's position as a number
    of games or of fetches."""
    state = {"batch_unit": "games", "asynchronous": False, **read_state(checkpoint)}
    mode = config.trainer.v1.trainer_mode
    require(
        state["asynchronous"] == (mode != "sync"),
        f"trainer.v1.trainer_mode={mode}: cannot go on from {checkpoint}, "
        + (
            f"which has {len(state.get('in_flight', ()))} games in flight; take colocate_async or separate_async"
            if state["asynchronous"]
            else "of a run in sync mode, whose games are numbered by their steps; take sync"
        )
        + ", or another run_dir",
    )
    settings = ["seed", "batch_unit"]
    if config.batch_unit == "games" or mode != "sync":
        settings += ["data.train_batch_size", "data.games_per_start", "data.responses"]
    if mode != "sync":  # each storage has a form of its own for the games in flight
        settings.append("transfer_queue.backend.storage_backend")
    for setting in settings:
        before, now = state.get(setting), OmegaConf.select(config, setting)
        require(
            before is None or before == now,
            f"{setting}={now}: cannot go on from {checkpoint}, which was trained with {before}; "
            f"take {setting}={before}, or another run_dir",
        )
    before, now = state.get("games"), written(parse_games(config.games))
    # In a folder of its own, a run may go on with other games: its records begin after the checkpoint.
    own = not is_of(checkpoint, Path(config.trainer.default_local_dir))
    require(
        before is None or before == now or own or not plays_games(config),
        f"games={now}: cannot go on from {checkpoint}, which was trained with {before}: its run's records could not be "
        f"checked; take games={before}, or go on in another run_dir, with trainer.resume_mode=resume_path and "
        f"trainer.resume_from_path={checkpoint}",
    )


PARTS = (_saved, _resumed)
