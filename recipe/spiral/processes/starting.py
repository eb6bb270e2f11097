"""What a start settles: the checkpoint that it goes on from, and the files of an earlier start that it leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

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
