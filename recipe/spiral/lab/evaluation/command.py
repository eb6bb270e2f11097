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
from ...processes.interrupts import interrupted_by
from ...processes.terminal import fail, quiet_logging, run_command, show_traceback, visible
from . import settings as schema

_GOES_ON = "what was played is kept: once that is mended, the same command goes on"


def main() -> None:
    """Run the evaluation, or with ``-m`` one after another, and end the process with status 0, 1 (failed), 2 (bad
    config, or another evaluation's folder) or 130 (interrupted)."""
    end_on_signals()
    load_dotenv(Path.cwd() / ".env")  # what is set already wins
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, and does not print them and end the process
    run_command(_composed)


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
    """Evaluate; errors become one last line on stderr. Returns the exit status."""
    try:
        settings = schema.Settings.from_config(config)
    except (ValueError, OmegaConfBaseException) as error:
        return fail(error, status=2)
    from ...processes.launch import put_on_path, set_environment

    if not settings.verbose:
        quiet_logging()
    hidden = {"VLLM_LOGGING_LEVEL"} if settings.verbose else set()
    set_environment({name: value for name, value in settings.environment.items() if name not in hidden})
    put_on_path(RECIPE.parents[1])
    # with that environment
    from ...players.player import PlayerFailure, PlayerMisconfigured, PromptTooLong
    from ...storage.disk import InUse
    from ..own_command import clean_run
    from .engines import EngineFailure, UnfitArguments
    from .evaluation import Evaluation, NothingPlayed, Refused
    from .evaluation_folder import OtherEvaluation

    try:
        print(f"evaluation: {settings.folder}", flush=True)
        with clean_run(settings.folder, "eval_dir"):
            try:
                evaluation = Evaluation(settings, show=lambda line: tqdm.write(visible(line)))
            except (ValueError, ImportError) as error:
                raise Refused(str(error)) from error
            text = evaluation.run()
        print(f"\n{visible(text)}", flush=True)
        return 0
    except (InUse, OtherEvaluation, PlayerMisconfigured, Refused, UnfitArguments) as error:
        return fail(error, status=2)
    except KeyboardInterrupt as error:
        return fail(f"interrupted by {interrupted_by(error)}; the same command goes on with what is left", 130)
    except (PlayerFailure, PromptTooLong, EngineFailure, OSError) as error:
        return fail(f"{error}; {_GOES_ON}", status=1)
    except NothingPlayed as error:
        return fail(error, status=1)
    except Exception as error:
        show_traceback(error)
        return fail(f"{type(error).__name__}: {error}", status=1)
