"""Evaluates policies at games: ``python -m recipe.spiral.main_eval [overrides]``.

Hydra composes the config, of ``config/eval.yaml`` and ``settings.py``; then the games that are missing are played, and
the results are printed. It needs neither Ray nor verl's trainer. vLLM runs in child processes, which have ended when it
ends.
"""

from __future__ import annotations

from ...processes.interrupts import end_on_signals  # the first import: it does so at once

# isort: split
import sys
from pathlib import Path

import hydra
from dotenv import load_dotenv
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from ...processes.composing import RECIPE
from ...processes.terminal import fail, quiet_logging, run_command, visible
from .settings import Refused, Settings


def main() -> None:
    """Run the evaluation, and end the process with status 0, 1 (failed, or not composed), 2 (refused) or 130
    (interrupted)."""
    end_on_signals()
    load_dotenv(Path.cwd() / ".env")  # what is set already wins
    run_command(compose, "; the same command goes on with what is left")


@hydra.main(config_path=str(RECIPE / "config"), config_name="eval", version_base=None)
def compose(config: DictConfig) -> None:
    """Run one config that Hydra has composed; with ``-m`` they are run one after another, until one fails."""
    if (status := run(config)) != 0:
        sys.exit(status)


def run(config: DictConfig) -> int:
    """Evaluate; what is no bug becomes one last line on stderr. Returns the exit status."""
    try:
        settings = Settings.from_config(config)
    except (ValueError, OmegaConfBaseException) as error:
        return fail(error, status=2)
    from ...processes.launch import put_on_path, set_environment

    quiet_logging()
    set_environment(settings.environment)
    put_on_path(RECIPE.parents[1])
    # with that environment
    from ...players.player import PlayerFailure, PlayerMisconfigured, PromptTooLong
    from ...storage.disk import InUse
    from ..own_command import clean_run
    from .engines import EngineFailure
    from .evaluation import Evaluation

    try:
        print(f"evaluation: {settings.folder}", flush=True)
        with clean_run(settings.folder, "eval_dir"):
            try:
                evaluation = Evaluation(settings, show=lambda line: tqdm.write(visible(line)))
            except (ValueError, ImportError) as error:
                return fail(error, status=2)
            text = evaluation.run()
        print(f"\n{visible(text)}", flush=True)
        return 0
    except (InUse, PlayerMisconfigured, Refused) as error:
        return fail(error, status=2)
    except (PlayerFailure, PromptTooLong, EngineFailure, OSError) as error:
        return fail(f"{error}; what was played is kept: once that is mended, the same command goes on", status=1)
