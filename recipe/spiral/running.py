"""Runs verl's trainer from its start to its end, however that comes: done, failed, a dead worker, or a signal.

Ray ends what it has started when this process ends, also by SIGKILL. What is left for us: a death that verl would wait
out (``pulse``), a checkpoint before a signal ends the run, and one last line that says why.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from . import extensions
from .checks.resumption import followed
from .processes.cluster import chosen_ray
from .processes.composing import as_written
from .processes.interrupts import (
    INTERRUPTED,
    STOP,
    STOPPED,
    STOPPED_STATUS,
    Interrupt,
    handle_by,
    interrupted_by,
    name_of,
    note,
)
from .processes.launch import set_environment, tracker_environment
from .processes.run_log import LOG, RUN_DIR, Follow, duration, say_now
from .processes.starting import set_aside
from .processes.terminal import fail, show_traceback, visible
from .rollouts.schedule import AGENT
from .storage.checkpoints import latest
from .storage.disk import append_line, write_whole
from .storage.run_files import CONFIG

#: Seconds that a run has for the rest of its step and a checkpoint after SIGTERM, unless this variable says others.
LIMIT = 120
SAVE_LIMIT = "SPIRAL_SAVE_LIMIT"
#: What Ray's own processes do not get: ``timeout`` and a closed terminal send it to the whole group.
_NOT_FOR_RAY = (signal.SIGTERM, signal.SIGHUP)


def train(config: DictConfig) -> int:
    """Train, in a folder that is this process's alone; errors become one last line on stderr. Returns the exit status:
    0, 1 (failed), 3 (stopped by a watcher) or 130 (a signal)."""
    run_dir = Path(config.run_dir)
    with chosen_ray(config) as session:
        prepare(config, run_dir)
        try:
            by = _run(config, run_dir)
        except KeyboardInterrupt as error:
            by = str(error) or interrupted_by()
        except Exception as error:
            from .processes.pulse import said_last

            show_traceback(error)
            if said := said_last(error, session):
                print(visible(said), file=sys.stderr, flush=True)
            cause = getattr(error, "cause", None) or error  # of Ray's error, which has a worker's traceback besides
            return fail(f"{type(cause).__name__}: {cause}; {again(config)}", status=1)
    if by:
        return fail(f"interrupted by {by}; {again(config)}", INTERRUPTED)
    if (run_dir / STOPPED).is_file():
        return fail((run_dir / STOPPED).read_text(encoding="utf-8"), STOPPED_STATUS)
    return 0


def again(config: DictConfig) -> str:
    """What another start does, for people."""
    step = latest(Path(config.trainer.default_local_dir))
    return "start it again to begin anew" if step is None else f"start it again to go on from step {step}"


def prepare(config: DictConfig, run_dir: Path) -> None:
    """Write what the run's processes and its folder need, and resolve the config."""
    for file in (STOPPED, STOP):
        (run_dir / file).unlink(missing_ok=True)
    for line in (*set_aside(config), *followed(config, note=True)):
        print(visible(line), flush=True)
        append_line(run_dir / LOG, line)
    trackers = tracker_environment(run_dir)
    set_environment(trackers)
    os.environ[RUN_DIR] = str(run_dir)
    with open_dict(config):
        config.trainer.default_local_dir = str(Path(config.trainer.default_local_dir).resolve())
    write_agent_loops(config, run_dir)
    # Hydra's own copy is overwritten also by a start that is refused
    write_whole(run_dir / CONFIG, OmegaConf.to_yaml(OmegaConf.create(as_written(config))))
    forward_environment(config, trackers)
    OmegaConf.resolve(config)  # our resolvers are known in this process only


def write_agent_loops(config: DictConfig, run_dir: Path) -> None:
    """Write the classes that serve a run's rows into the file in which verl's rollout workers look for them."""
    loops = {AGENT: "recipe.spiral.rollout.GameAgentLoop"}
    for extension in extensions.loaded():
        loops |= extension.agent_loops(config)
    file = run_dir / "agent_loops.yaml"
    entries = [{"name": name, "_target_": target} for name, target in loops.items()]
    file.write_text(json.dumps(entries, indent=1), encoding="utf-8")  # JSON is YAML
    OmegaConf.update(config, "actor_rollout_ref.rollout.agent.agent_loop_config_path", str(file), force_add=True)


def forward_environment(config: DictConfig, trackers: Iterable[str]) -> None:
    """Pass environment variables, those of ``trackers`` among them, to the run's processes on all machines, but for
    values that are read from the environment: verl prints what it passes on, and on this machine they are inherited.
    Each worker dies with its raylet."""
    plain = [name for name, value in as_written(config)["environment"].items() if "${" not in str(value)]
    names = [*plain, "PYTHONPATH", "WANDB_MODE", *trackers, RUN_DIR, extensions.NAMES]
    variables = {name: os.environ[name] for name in names if name in os.environ}
    runtime = OmegaConf.create({"worker_process_setup_hook": "recipe.spiral.processes.launch.die_with_parent"})
    given = config.ray_kwargs.ray_init.get("runtime_env", {})
    with open_dict(config):
        config.ray_kwargs.ray_init.runtime_env = OmegaConf.merge(runtime, given, {"env_vars": variables})


def _run(config: DictConfig, run_dir: Path) -> str:
    """Start Ray and verl's trainer in it, and wait for its end; returns the signal after which it has saved and ended,
    or ""."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError
    from verl.trainer.main_ppo import run_ppo

    from .processes.pulse import Pulse
    from .task_runner import TaskRunner

    print(f"run folder: {run_dir}", flush=True)
    follow = Follow(run_dir)
    ending = Ending(config, follow)
    pulse = Pulse(died=ending.end_with)

    def start_trainer(**options: Any) -> Any:
        """verl asks for its actor as soon as Ray runs, which has taken SIGTERM for itself."""
        ending.take_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_RAY)
        pulse.start()
        return ray.remote(TaskRunner).options(**options).remote()

    trainer = SimpleNamespace(
        remote=start_trainer, options=lambda **options: SimpleNamespace(remote=partial(start_trainer, **options))
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_RAY)  # Ray's processes inherit it
    try:
        shows = config.ray_kwargs.ray_init.log_to_driver
        with follow, nullcontext() if shows else redirect_stdout(io.StringIO()):
            say_now("Ray starts")
            run_ppo(config, task_runner_class=trainer)
    except KeyboardInterrupt:
        if ending.failure is None:
            raise
        raise ending.failure from ending.failure.__cause__
    except Exception as error:
        # where the trainer itself has died, all that it had started dies with it
        its_own = isinstance(error, RayActorError) and not isinstance(error, RayTaskError)
        if its_own or (dead := pulse.dead()) is None:
            raise
        raise dead from dead.__cause__ or error
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_RAY)
        signal.setitimer(signal.ITIMER_REAL, 0)
        pulse.stop()
        ray.shutdown()
    return ending.by


class Ending:
    """What ends a run from outside. The first signal asks the trainer to save a checkpoint after its step, and to end;
    Ctrl-C waits for that however long it takes, the others for a limit. A second signal ends at once.

    Attributes:
        by: the signal that came; "": none did.
        failure: what ``end_with`` was given.
    """

    def __init__(self, config: DictConfig, follow: Follow) -> None:
        self._config, self._follow = config, follow
        self._limit = float(os.environ.get(SAVE_LIMIT, LIMIT))
        self._lost = ""
        self.by = ""
        self.failure: Exception | None = None

    def take_signals(self) -> None:
        handle_by(self._on_signal)
        signal.signal(signal.SIGALRM, self._raise)

    def end_with(self, error: Exception) -> None:
        """Interrupt the main thread, which waits for the trainer."""
        self.failure = error
        os.kill(os.getpid(), signal.SIGALRM)

    def _raise(self, number: int, frame: object) -> None:
        # where Ray waits, it swallows what a handler raises, unless that is a KeyboardInterrupt
        raise Interrupt(str(self.failure or self._lost))

    def _on_signal(self, number: int, frame: object) -> None:
        if not note(number):
            return
        if self.by or not (self._follow.trains and self._config.trainer.save_freq > 0):  # nothing to save
            raise Interrupt(self.by or name_of(number))
        self.by, last = name_of(number), self._follow.step_seconds
        Path(self._config.run_dir, STOP).touch()
        took = "" if last is None else f" (the last step took {duration(last)})"
        if number == signal.SIGINT:
            self._follow.say(f"Ctrl-C: a checkpoint is saved after this step{took}; once more: at once, without")
            return
        step = latest(Path(self._config.trainer.default_local_dir))
        lost = "the start" if step is None else f"step {step}"
        limit = f"within {self._limit:g} s ({SAVE_LIMIT})"
        self._lost = f"{self.by}, and no checkpoint {limit}: what came after {lost} is lost"
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        self._follow.say(f"{self.by}: a checkpoint is saved after this step{took}, {limit}")
