"""What a start settles: the checkpoint that it goes on from, and the files of an earlier start that it leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ..players.prompts import DATE, DATE_FORM, Tokenizer, tells_the_date
from ..storage.checkpoints import (
    CONFIG,
    EARLIER,
    POOL,
    TRACKER,
    config_of,
    is_of,
    latest,
    resumed_from,
    run_before,
    steps,
)
from ..storage.metrics_file import METRICS, read_metrics
from ..storage.record_writer import RecordWriter
from ..storage.run_config import CHANGES
from .launch import TRACKERS, only_one
from .run_log import LOG

#: verl's and vLLM's names of full precision.
_FULL = ("float32", "fp32", "32")
#: What a run writes in its folder, besides checkpoints and what endpoints have cost, which a budget goes on with.
_OF_A_RUN = (
    *("games", "report", "tensorboard", "wandb"),
    *(CONFIG, CHANGES, LOG, METRICS, "metrics-*.jsonl", TRACKERS),
)


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
    if trainer.resume_mode == "resume_path" and latest(own) is not None and not is_of(checkpoint, own):
        trainer.resume_mode = "auto"
        print(
            f"trainer.resume_from_path={checkpoint}: the run has checkpoints of its own in {own}, and goes on from the "
            "last of them; to begin there once more, take another run_dir",
            flush=True,
        )


@contextmanager
def own_checkpoints(config: DictConfig) -> Iterator[None]:
    """Keep other runs out of a folder of checkpoints that is not in the run's, by a lock. Raises InUse: one has it."""
    run_dir, own = Path(str(config.run_dir)).resolve(), Path(str(config.trainer.default_local_dir)).resolve()
    if own.is_relative_to(run_dir):
        yield
        return
    own.mkdir(parents=True, exist_ok=True)
    with only_one(own, "trainer.default_local_dir"):
        yield


def set_aside(config: DictConfig) -> list[str]:
    """Where a run begins anew in a folder that has steps of an earlier one, put these into a folder of their own, so
    that nothing is removed; returns what to say about it."""
    run_dir, own, checkpoint = Path(config.run_dir), Path(config.trainer.default_local_dir), resumed_from(config)
    if checkpoint is not None and is_of(checkpoint, own):
        return []
    logged = [entry.step for entry, _ in read_metrics(run_dir / METRICS)]
    saved = bool(steps(own)) or os.path.lexists(own / TRACKER)
    if not (logged or saved or RecordWriter(run_dir / "games").steps("train")):
        return []
    pool = [POOL] if any(logged) or saved else []  # before the first step it has nobody who is not made again
    aside = time.strftime(EARLIER)
    for folder, patterns in ((run_dir, [*_OF_A_RUN, *pool]), (own, ("global_step_*", f"{TRACKER}*"))):
        for path in [path for pattern in patterns for path in folder.glob(pattern)]:
            (folder / aside).mkdir(exist_ok=True)
            path.rename(folder / aside / path.name)
    return [f"{run_dir}: the run begins anew; what an earlier one wrote here is in folders named {aside} now"]


def reduced_precision(config: DictConfig) -> str | None:
    """The type in which the engine or the trainer computes, if it is not float32."""
    mixed = config.actor_rollout_ref.actor.fsdp_config.get("mixed_precision")
    trainer = mixed.get("param_dtype", "bf16") if OmegaConf.is_dict(mixed) else "bf16"
    types = (str(config.actor_rollout_ref.rollout.dtype), str(trainer))
    return next((name for name in types if name not in _FULL), None)


def bypass_mode(config: DictConfig) -> Any:
    """Whether the engine's log-probabilities are trained with: ``algorithm.rollout_correction.bypass_mode``, or what
    auto means: where they are the trainer's. On a GPU they are not even in float32, which vLLM's attention multiplies
    in TF32, with 10 bits after the point."""
    given = config.algorithm.rollout_correction.bypass_mode
    return config.trainer.device == "cpu" and reduced_precision(config) is None if given == "auto" else given


def rollout_is(config: DictConfig) -> Any:
    """How turns of earlier versions are weighted: ``algorithm.rollout_correction.rollout_is``, or what auto means."""
    correction = config.algorithm.rollout_correction
    if correction.rollout_is != "auto":
        return correction.rollout_is
    return None if config.trainer.v1.trainer_mode == "sync" or bypass_mode(config) else "token"


def keep_date(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Fix the date that the model's chat template tells in each prompt: the first day of the run, or of the one that it
    goes on from, also for evaluations of it."""
    kwargs = config.data.apply_chat_template_kwargs
    if not tells_the_date(tokenizer) or kwargs.get(DATE):
        return
    checkpoint = resumed_from(config)
    before = None if checkpoint is None else config_of(run_before(config, checkpoint))
    first = None if before is None else OmegaConf.select(before, f"data.apply_chat_template_kwargs.{DATE}")
    with open_dict(kwargs):
        kwargs[DATE] = first or date.today().strftime(DATE_FORM)
