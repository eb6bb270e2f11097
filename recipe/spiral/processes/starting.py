"""What a start settles: the checkpoint that it goes on from, the date in its prompts, and where files of an earlier run
go."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict

from ..players.prompts import DATE, DATE_FORM, Tokenizer, tells_the_date
from ..storage.checkpoints import EARLIER, POOL, TRACKER, config_before, is_of, latest, resumed_from, steps
from ..storage.run_files import CHANGES, CONFIG, METRICS, read_metrics
from .launch import TRACKERS
from .run_log import LOG

#: What a run writes in its folder, besides checkpoints and what endpoints have cost, which a budget goes on with.
_OF_A_RUN = (
    *("games", "report", "tensorboard", "wandb", POOL),
    *(CONFIG, CHANGES, LOG, METRICS, "metrics-*.jsonl", TRACKERS),
)


def choose_checkpoint(config: DictConfig) -> None:
    """Name the checkpoint as all processes find it, and as verl takes it: whole, and without a slash at the end.

    A run that began at a checkpoint of another one, and has saved some of its own since, goes on from the last of them,
    and says so: the same command goes on with a run.
    """
    trainer = config.trainer
    if not trainer.resume_from_path:
        return
    checkpoint = Path(str(trainer.resume_from_path)).expanduser().absolute()  # a link to one has the name that counts
    trainer.resume_from_path = str(checkpoint)
    own = Path(trainer.default_local_dir)
    if trainer.resume_mode == "resume_path" and latest(own) is not None and not is_of(checkpoint, own):
        trainer.resume_mode = "auto"
        print(
            f"trainer.resume_from_path={checkpoint}: the run has checkpoints of its own in {own}, and goes on from the "
            "last of them; to begin there once more, take another run_dir",
            flush=True,
        )


def keep_date(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Fix the date that the model's chat template tells in each prompt: the first day of the run, or of the one that it
    goes on from, also for evaluations of it."""
    kwargs, key = config.data.apply_chat_template_kwargs, f"data.apply_chat_template_kwargs.{DATE}"
    if not tells_the_date(tokenizer) or kwargs.get(DATE):
        return
    checkpoint = resumed_from(config)
    before = None if checkpoint is None else config_before(config, checkpoint)
    first = None if before is None else OmegaConf.select(before, key)
    with open_dict(kwargs):
        kwargs[DATE] = first or date.today().strftime(DATE_FORM)


def set_aside(config: DictConfig) -> list[str]:
    """Where a run begins anew in a folder that has steps of an earlier one, put these into a folder of their own, so
    that nothing is removed; returns what to say about it."""
    run_dir, own, checkpoint = Path(config.run_dir), Path(config.trainer.default_local_dir), resumed_from(config)
    goes_on = checkpoint is not None and is_of(checkpoint, own)
    if goes_on or not (steps(own) or any(entry.step for entry, _ in read_metrics(run_dir / METRICS))):
        return []
    aside = time.strftime(EARLIER)
    for folder, patterns in ((run_dir, _OF_A_RUN), (own, ("global_step_*", f"{TRACKER}*"))):
        for path in [path for pattern in patterns for path in folder.glob(pattern)]:
            (folder / aside).mkdir(exist_ok=True)
            path.rename(folder / aside / path.name)
    return [f"{run_dir}: the run begins anew; what an earlier one wrote here is in folders named {aside} now"]
