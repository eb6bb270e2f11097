"""Evaluates policies at games: ``python -m recipe.spiral.main_eval [overrides]``.

It composes the config, checks it, plays the games that are missing, and prints the results. It needs neither Ray nor
verl's trainer. vLLM runs in child processes, which have ended when it ends.
"""

from __future__ import annotations

from ...processes.interrupts import end_on_signals  # the first import: it does so at once

# isort: split
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from ...checks import ConfigError
from ...checks.command_line import compose
from ...processes.composing import RECIPE
from ...processes.interrupts import held_back, interrupt_on_signals, interrupted_by
from ...processes.terminal import fail, quiet_logging, run_command, show_traceback, visible

if TYPE_CHECKING:
    from .settings import Settings


def main() -> None:
    """Run the evaluation, and end the process with status 0, 1 (failed), 2 (bad config, or another evaluation's folder)
    or 130 (interrupted)."""
    end_on_signals()
    run_command(_main)


def _main() -> int:
    try:
        jobs = compose("eval")
    except ConfigError as error:
        return fail(error, status=2)
    return next((status for config, _ in jobs if (status := run(config))), 0)


def run(config: DictConfig) -> int:
    """Evaluate; errors become one last line on stderr. Returns the exit status."""
    from ...players.player import PlayerFailure, PlayerMisconfigured, PromptTooLong
    from ...processes.engine_failure import EngineFailure
    from ...processes.launch import clean_run, put_on_path, set_environment
    from ...storage.disk import InUse
    from ..database import DamagedDatabase, DiskFull
    from .matches.store import OtherEvaluation
    from .outputs.following import follow
    from .policies.evaluation_engine import UnfitArguments
    from .settings import NothingPlayed, Refused, Settings

    try:
        environment = dict(OmegaConf.to_container(config.environment, resolve=True))
        if config.verbose:
            environment.pop("VLLM_LOGGING_LEVEL", None)
        else:
            quiet_logging()
        set_environment(environment)
        put_on_path(RECIPE.parents[1])
        settings = Settings.from_config(config)
        print(f"evaluation: {settings.eval_dir}", flush=True)
        interrupt_on_signals()
        with clean_run(settings.eval_dir, "eval_dir"):
            if settings.follow is not None:
                text, results = follow(settings, _evaluated, _show), "curves.csv, step_*/results.json"
            else:
                text, results = _evaluated(settings), "results.json, .csv, .txt"
        print(f"\n{text}\n\nresults: {settings.eval_dir}/{results}", flush=True)
    except (
        InUse,
        OtherEvaluation,
        DamagedDatabase,
        OmegaConfBaseException,
        PlayerMisconfigured,
        Refused,
        UnfitArguments,
    ) as error:
        return fail(error, status=2)
    except KeyboardInterrupt as error:
        return fail(f"interrupted by {interrupted_by(error)}; the same command goes on with what is left", 130)
    except PromptTooLong as error:
        return fail(f"{error}; what was played is kept, and the same command with that goes on", status=1)
    except (PlayerFailure, DiskFull, EngineFailure, OSError) as error:
        return fail(f"{error}; what was played is kept, and once that is mended another start goes on", status=1)
    except NothingPlayed as error:
        return fail(error, status=1)
    except Exception as error:
        if isinstance(error, ValueError) and "settings" not in locals():
            return fail(error, status=2)
        show_traceback(error)
        return fail(f"{type(error).__name__}: {error}", status=1)
    return 0


def _show(line: str) -> None:
    tqdm.write(visible(line))


def _evaluated(settings: Settings) -> str:
    """Run or resume one evaluation; returns its results as text."""
    with held_back():
        from .evaluation import Evaluation
        from .settings import Refused

    try:
        evaluation = Evaluation(settings, show=_show)
    except (ValueError, ImportError) as error:
        raise Refused(str(error)) from error
    return evaluation.run()


if __name__ == "__main__":
    main()
