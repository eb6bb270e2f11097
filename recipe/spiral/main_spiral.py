"""Trains a language model by self-play: ``python -m recipe.spiral.main_spiral [overrides]``.

Hydra composes the config, of ``config/`` and ``config.py``. What follows is set, what would train wrongly is refused,
and verl's trainer runs with SPIRAL's hooks. With ``-m`` each job is a child process.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import hydra
from dotenv import load_dotenv
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from . import extensions
from .checks import check
from .checks.combinations import check_by_verl, check_gpus
from .checks.prompts_fit import check_model
from .checks.resumption import finished
from .checks.settle import settle
from .processes.cluster import listen_on_loopback
from .processes.composing import RECIPE
from .processes.interrupts import end_on_signals, interrupt_on_signals, interrupted_by
from .processes.launch import end_with_parent, name_user, put_on_path, set_environment
from .processes.starting import choose_checkpoint, keep_date
from .processes.terminal import fail, quiet_logging, run_command, visible
from .rollouts.end_tokens import name_end_tokens
from .running import train
from .storage.disk import InUse, only_one

#: What refuses a start, in one line.
REFUSED = (ValueError, ImportError, OSError, OmegaConfBaseException, InUse)


def main() -> None:
    """Run what the command line asks for, and end the process with status 0, 1 (failed, or not composed), 2 (refused),
    3 (stopped by the guard) or 130 (interrupted)."""
    end_on_signals()
    name_user()
    load_dotenv(Path.cwd() / ".env")  # what is set already wins
    run_command(compose, " before anything was started")


@hydra.main(config_path=str(RECIPE / "config"), config_name="spiral_trainer", version_base=None)
def compose(config: DictConfig) -> None:
    """Run one config that Hydra has composed."""
    job = HydraConfig.get()
    if job.mode != RunMode.MULTIRUN:
        sys.exit(run(config))
    config.run_dir = job.runtime.output_dir
    config.trainer.experiment_name += f"/{Path(config.run_dir).name}"
    if (status := in_child(config)) != 0:
        # Hydra starts the other jobs all the same, and then shows this
        raise CompactHydraException(f"{config.run_dir}: status {status}")


def in_child(config: DictConfig) -> int:
    """Run in a copy of this process, which has begun nothing yet; returns the exit status."""

    def start() -> None:
        end_with_parent()
        sys.exit(run(config))

    child = multiprocessing.get_context("fork").Process(target=start)
    interrupt_on_signals()
    child.start()
    try:
        child.join()
    except KeyboardInterrupt as error:
        if interrupted_by(error) != "Ctrl-C":  # which a terminal sends to both
            child.terminate()
        child.join()
        raise
    return child.exitcode or 0


def run(config: DictConfig) -> int:
    """Train; errors become one last line on stderr. Returns the exit status."""
    try:
        set_environment(OmegaConf.to_container(config.environment, resolve=True))  # verl reads it as it is imported
        listen_on_loopback(config)
        settle(config)
        choose_checkpoint(config)
        put_on_path(RECIPE.parents[1])
        if any(not name.startswith("recipe.spiral.") for name in config.extensions):
            put_on_path(Path.cwd())  # where a module of the user's is, for the run's other processes
        if done := finished(config):
            print(visible(done), flush=True)
            return 0
        quiet_logging()
        check(config)  # without torch and verl, which take seconds to import
        for extension in extensions.loaded():
            extension.check(config)
        import verl  # noqa: F401

        interrupt_on_signals()
        tokenizer = check_model(config)
        name_end_tokens(config, tokenizer.eos_token_id)
        keep_date(config, tokenizer)
        check_by_verl(config)
        check_gpus(config)
        with only_one(Path(config.run_dir)):
            return train(config)
    except REFUSED as error:
        return fail(error, status=2)


if __name__ == "__main__":
    main()
