"""Trains a language model by self-play: ``python -m recipe.spiral.main_spiral [overrides]``.

Hydra composes the config, of ``config/`` and ``config.py``. What follows is set, what would train wrongly is refused,
and verl's trainer runs with SPIRAL's hooks. With ``-m`` each job is a child process.
"""

from __future__ import annotations

from .processes.interrupts import end_on_signals  # the first import: it does so at once

# isort: split
import importlib
import json
import multiprocessing
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import hydra
from dotenv import load_dotenv
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from . import extensions
from .checks import ConfigError, check, check_model, refusals
from .checks.combinations import check_late
from .checks.errors import require
from .checks.resumption import finished, followed
from .checks.settle import settle
from .processes.as_written import as_written
from .processes.causes import CAUSE, cause_of
from .processes.cluster import choose_ray, listen_on_loopback, own_ray
from .processes.composing import RECIPE
from .processes.engine_failure import RUN_DIR
from .processes.interrupts import (
    LIMIT,
    SAVE_LIMIT,
    STOP,
    STOPPED,
    STOPPED_STATUS,
    held_back,
    interrupt_on_signals,
    interrupted,
    interrupted_by,
)
from .processes.launch import (
    TRACKER_VARIABLES,
    clean_run,
    end_with_parent,
    one_run,
    put_on_path,
    set_environment,
    tracked,
    tracker_environment,
)
from .processes.masking import is_secret, take_secrets_out, write_config
from .processes.run_log import LOG
from .processes.starting import choose_checkpoint, keep_date, own_checkpoints, set_aside
from .processes.terminal import Follow, fail, prints_aside, quiet_logging, run_command, show_traceback, visible
from .processes.trainer_process import TrainerEnded, TrainerProcess
from .rollouts.end_tokens import end_tokens
from .rollouts.schedule import AGENT
from .storage.checkpoints import CONFIG, latest
from .storage.disk import InUse, LineFile


class JobFailed(CompactHydraException):
    """A job of a multirun has not trained to its end. Hydra starts the others all the same, and then shows this."""


def main() -> None:
    """Run what the command line asks for, and end the process with status 0, 1 (failed, or not composed), 2 (refused),
    3 (stopped by the guard) or 130 (interrupted)."""
    end_on_signals()
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
        raise JobFailed(f"{config.run_dir}: status {status}")


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
        with refusals():
            settle(config)
            set_environment(OmegaConf.to_container(config.environment, resolve=True))
            take_secrets_out(config)
            listen_on_loopback(config)
            put_on_path(RECIPE.parents[1])
            if any(not name.startswith("recipe.spiral.") for name in config.extensions):
                put_on_path(Path.cwd())  # where a module of the user's is, for the run's other processes
            choose_checkpoint(config)
            if lines := finished(config):
                print(visible("\n".join(lines)), flush=True)
                return 0
            if not config.verbose:
                quiet_logging()
            check(config)  # without torch and verl, which take seconds to import
            for extension in extensions.loaded():
                extension.check(config)
            _import_verl()
            interrupt_on_signals()
            tokenizer = check_model(config)
            name_end_tokens(config, tokenizer.eos_token_id)
            keep_date(config, tokenizer)
    except ConfigError as error:
        if interrupted():
            raise KeyboardInterrupt from error
        return fail(error, status=2)
    run_dir = Path(str(config.run_dir))
    try:
        with own_ray(config), clean_run(run_dir), own_checkpoints(config):
            train(config)
    except (ConfigError, InUse) as error:
        return fail(error, status=2)
    except KeyboardInterrupt as error:
        return fail(f"interrupted by {interrupted_by(error)}; {again(config)}", 130)
    except TrainerEnded as error:
        if interrupted():  # both were sent the signal, and the trainer was the first
            return fail(f"interrupted by {interrupted_by()}; {again(config)}", 130)
        return fail(error, status=1)
    except Exception as error:
        show_traceback(error)
        return fail(cause_of(error), status=1)
    if (run_dir / STOPPED).is_file():
        return fail((run_dir / STOPPED).read_text(encoding="utf-8"), STOPPED_STATUS)
    return 0


def again(config: DictConfig) -> str:
    """What a start after an interruption does, for people."""
    step = latest(Path(str(config.trainer.default_local_dir)))
    return "start it again to begin anew" if step is None else f"start it again to go on from step {step}"


def _import_verl() -> None:
    """Import verl and the modules that the environment names, also if verl was imported before they were named. A
    ConfigError says that the cache is not this user's own."""
    try:
        import verl  # noqa: F401

        for module in filter(None, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")):
            importlib.import_module(module)
    except PermissionError as error:
        raise ConfigError(str(error)) from error
    except ValueError as error:  # HF_HUB_DOWNLOAD_TIMEOUT=10s
        raise ConfigError(f"a library refuses a variable of the environment: {error}") from error


def name_end_tokens(config: DictConfig, tokenizer_eos: int | None) -> None:
    """Name all tokens that end a response in the config of every checkpoint, which verl gives the tokenizer's alone.

    Otherwise responses of what was trained would end elsewhere in an evaluation.
    """
    model = config.actor_rollout_ref.model
    ends = end_tokens(model.path, tokenizer_eos)
    if ends - {tokenizer_eos}:
        with open_dict(model.override_config):
            model.override_config.setdefault("eos_token_id", sorted(ends))


def train(config: DictConfig) -> None:
    """Run verl's trainer until it has finished. Shows a line for each step."""
    run_dir, seconds = Path(str(config.run_dir)), seconds_to_save()
    for note in (CAUSE, STOPPED, STOP):
        (run_dir / note).unlink(missing_ok=True)
    with held_back():  # only now, in the environment that the hardware needs
        from verl.trainer.main_ppo import run_ppo
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        from .task_runner import task_runner_class
        from .training.console import TRAINS

    try:
        with nullcontext() if config.verbose else prints_aside(run_dir):
            validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
            check_late(config)
    except Exception as error:  # a class that is not there, an argument that it does not take
        raise ConfigError(verls_reason(error)) from error
    lines = [*set_aside(config), *followed(config, note=True)]
    set_environment(tracker_environment(run_dir, "metrics") | one_run(tracked(run_dir)["run"]))
    with open_dict(config):
        config.ray_kwargs.ray_init.log_to_driver = bool(config.verbose)
        config.ray_kwargs.ray_init.setdefault("logging_level", "INFO" if config.verbose else "WARNING")
        config.trainer.default_local_dir = str(Path(config.trainer.default_local_dir).resolve())
    choose_ray(config)
    write_agent_loops(config, run_dir)
    # Hydra's own copy is overwritten also by a start that is refused
    write_config(run_dir / CONFIG, config)
    os.environ[RUN_DIR] = str(run_dir)
    _forward_environment(config)
    OmegaConf.resolve(config)  # our resolvers are known in this process only
    print(f"run folder: {run_dir}\nstarting Ray, the policy's workers and vLLM ...", flush=True)
    task_runner = task_runner_class(config)
    follow = Follow(run_dir)
    trainer = TrainerProcess(
        lambda ray_runs: run_ppo(config, task_runner_class=task_runner(ray_runs)),
        run_dir,
        aside=not config.verbose,
        plain_errors=(ConfigError,),
    )
    with follow:
        for line in lines:
            LineFile(run_dir / LOG).append(line)
        try:
            trainer.wait()
        except KeyboardInterrupt:
            if follow.seen(*TRAINS) and config.trainer.save_freq > 0:  # otherwise there is nothing to save
                (run_dir / STOP).touch()
                print(f"a checkpoint is saved after this step, within {seconds} s; once more: at once", flush=True)
                trainer.wait(seconds)
            raise


def seconds_to_save() -> int:
    """How long a run has to save after a signal: a job's system kills it some time after its own."""
    given = os.environ.get(SAVE_LIMIT, str(LIMIT))
    require(given.isdecimal(), f"{SAVE_LIMIT}={given}: must be whole seconds, such as 280")
    return int(given)


def write_agent_loops(config: DictConfig, run_dir: Path) -> None:
    """Write the classes that serve a run's rows into the file in which verl's rollout workers look for them."""
    loops = {AGENT: "recipe.spiral.rollout.GameAgentLoop"}
    for extension in extensions.loaded():
        loops |= extension.agent_loops(config)
    file = run_dir / "agent_loops.yaml"
    entries = [{"name": name, "_target_": target} for name, target in loops.items()]
    file.write_text(json.dumps(entries, indent=1), encoding="utf-8")  # JSON is YAML
    OmegaConf.update(config, "actor_rollout_ref.rollout.agent.agent_loop_config_path", str(file), force_add=True)


def verls_reason(error: BaseException) -> str:
    """Why verl refuses a config. Hydra wraps what verl's dataclasses raise, and some of their assertions say nothing:
    then it is what was asserted."""
    while error.__cause__ is not None:
        error = error.__cause__
    asserted = traceback.extract_tb(error.__traceback__)[-1].line
    return f"verl refuses the config: {str(error) or asserted}"


def _forward_environment(config: DictConfig) -> None:
    """Pass environment variables to the run's processes on all machines. No keys of services: Ray would print them."""
    plain = [name for name, value in as_written(config.environment).items() if "${" not in str(value)]
    names = [*plain, "PYTHONPATH", *TRACKER_VARIABLES, RUN_DIR, extensions.NAMES]
    variables = {name: os.environ[name] for name in names if name in os.environ and not is_secret(name)}
    OmegaConf.update(config, "ray_kwargs.ray_init.runtime_env.env_vars", variables, force_add=True)


if __name__ == "__main__":
    main()
