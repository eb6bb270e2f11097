"""Evaluates policies at games: ``python -m recipe.spiral.main_eval [overrides]``.

Hydra composes the config, of ``config/eval.yaml`` and ``settings.py``; then the games that are missing are played, and
the results are printed. It needs neither Ray nor verl's trainer. vLLM runs in child processes, which have ended when it
ends.
"""

from __future__ import annotations

from ...processes.interrupts import end_on_signals  # the first import: it does so at once

# isort: split
import os
from pathlib import Path

import hydra
from dotenv import load_dotenv
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from ...processes.composing import RECIPE
from ...processes.terminal import fail, quiet_logging, run_command, visible
from .settings import Refused, Settings


def main() -> None:
    """Run the evaluation, or with ``-m`` one after another, and end the process with status 0, 1 (failed), 2 (bad
    config, or another evaluation's folder) or 130 (interrupted)."""
    end_on_signals()
    load_dotenv(Path.cwd() / ".env")  # what is set already wins
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, and does not print them and end the process
    run_command(_composed, "; the same command goes on with what is left")


def _composed() -> int:
    statuses: list[int] = []

    def compose(config: DictConfig) -> None:
        statuses.append(run(config))

    try:
        hydra.main(config_path=str(RECIPE / "config"), config_name="eval", version_base=None)(compose)()
    except (HydraException, OmegaConfBaseException, OSError) as error:
        return fail(f"{error} {error.__cause__ or ''}", status=2)
    return max(statuses, default=0)


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
