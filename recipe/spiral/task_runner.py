"""verl's task runner, with SPIRAL's trainer in place of verl's for the same mode, and a watchdog over the workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pprint import pprint
from types import SimpleNamespace
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.workers.rollout.replica import RolloutMode

from .processes import masking
from .processes.watchdog import Watchdog

#: The class under Ray's actor: Ray forbids to inherit from the actor class itself.
_VerlTaskRunner: Any = TaskRunnerV1.__ray_metadata__.modified_class


class TaskRunner(_VerlTaskRunner):
    """Builds the trainer, the agent loops and TransferQueue as verl does, and trains. ``secrets``: ``masking.KNOWN`` of
    the process that starts the run."""

    def __init__(self, secrets: Mapping[str, str] = {}) -> None:
        super().__init__()
        masking.KNOWN.update(secrets)

    def run(self, config: DictConfig) -> None:
        from .rollouts import packed_storage  # noqa: F401  (registers it)

        with ThreadPoolExecutor(1) as aside:
            # verl finds it started; its processes import meanwhile
            queue = aside.submit(tq.init, config.transfer_queue)
            self._import_trainer(config)
            queue.result()
        self._take_over(Path(config.run_dir))
        super().run(config)

    def _import_trainer(self, config: DictConfig) -> None:
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

        from .trainer import trainer_class
        from .workers import engine  # noqa: F401  (registers it)

        mode = config.trainer.v1.trainer_mode
        # verl compares the mode's name literally, so that in this process another class gets the same name.
        TRAINER_REGISTRY[mode] = trainer_class(mode)
        # verl 0.9.1 would print a line there with an argument that loggers do not take
        logging.getLogger("verl.trainer.ppo.v1.trainer_separate_async").setLevel(logging.WARNING)

    def _take_over(self, run_dir: Path) -> None:
        """Let nobody read keys where verl prints the config, and hands it to trackers, which are to go on with the run.
        For both verl asks its modules, and in this process it gets ours."""
        from verl.trainer import main_ppo
        from verl.trainer.ppo.v1 import trainer_base

        tracking = trainer_base.Tracking
        main_ppo.pprint = lambda config: pprint(masking.without_secrets(config))
        trainer_base.Tracking = lambda *args, config=None, **more: tracking(
            *args, config=masking.without_secrets(config), **more
        )

    def init_agent_loop_manager(self) -> None:
        super().init_agent_loop_manager()
        watchdog = Watchdog(
            dict(self._actors()),
            Path(self.config.run_dir),
            step=lambda: int(getattr(self.trainer, "global_steps", 0)),
            on_silence=self.config.watchdog,
        )
        watchdog.start()
        fit = self.trainer.fit

        def watched(manager: Any) -> None:
            """verl ends TransferQueue's processes next, also after a failure, and nobody is to be blamed for that."""
            try:
                fit(manager)
            except Exception:
                watchdog.blame()
                raise
            finally:
                watchdog.stop()

        self.trainer.fit = watched

    def _actors(self) -> Iterator[tuple[str, Any]]:
        """Every actor whose death would leave the trainer waiting, with a name for people."""
        known: dict[str, Any] = {}
        for i, worker in enumerate(self.trainer.actor_rollout_wg.workers):
            known[f"policy worker {i}"] = worker
        managers = self.trainer._rollout_server_managers()
        for i, replica in enumerate(replica for manager in managers for replica in manager.get_replicas()):
            for j, server in enumerate(replica.servers):
                known[f"vLLM server {i}.{j}"] = server
            if replica.rollout_mode is RolloutMode.STANDALONE:  # otherwise these are the policy workers
                known |= {f"receiver of weights {i}.{j}": worker for j, worker in enumerate(replica.workers)}
        if self.trainer.opponents is not None:
            known.update(self.trainer.opponents.actors())
        for i, worker in enumerate(self.agent_loop_manager.agent_loop_workers):
            known[f"rollout worker {i}"] = worker
        yield from known.items()
        seen = {actor._actor_id for actor in known.values()}
        # The others are helpers of verl and TransferQueue, which this job has as named actors.
        namespaces = {ray.get_runtime_context().namespace, "transfer_queue"}
        for entry in ray.util.list_named_actors(all_namespaces=True):
            if entry["namespace"] in namespaces:
                actor = ray.get_actor(entry["name"], entry["namespace"])
                if actor._actor_id not in seen:
                    yield entry["name"], actor


class RemoteTaskRunner:
    """Stands in for the actor class that ``verl.trainer.main_ppo.run_ppo`` expects.

    Args:
        ray_runs: called as soon as it does, with whether the trainer is in this process.
    """

    def __init__(self, ray_runs: Callable[[bool], None]) -> None:
        self._ray_runs = ray_runs
        self._actor_class = ray.remote(TaskRunner)

    def options(self, **options: Any) -> RemoteTaskRunner:
        self._actor_class = self._actor_class.options(**options)
        return self

    def remote(self) -> Any:
        self._ray_runs(False)
        return self._actor_class.remote(masking.KNOWN)


class TaskRunnerHere:
    """The same for a task runner in this process, with the environment that Ray would give its actor."""

    def __init__(self, ray_runs: Callable[[bool], None]) -> None:
        self._ray_runs = ray_runs
        self._task_runner = TaskRunner()

    def remote(self) -> Any:
        os.environ.update(ray.get_runtime_context().runtime_env.get("env_vars", {}))
        # A copy of a process lacks the threads that torch and tokenizers started there, and would wait for them.
        torch.set_num_threads(1)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._ray_runs(True)
        return SimpleNamespace(run=SimpleNamespace(remote=self._run))

    def _run(self, config: DictConfig) -> ray.ObjectRef[None]:
        self._task_runner.run(config)
        return ray.put(None)


def task_runner_class(config: DictConfig) -> type[RemoteTaskRunner] | type[TaskRunnerHere]:
    """In this process, where that can be."""
    return TaskRunnerHere if config.global_profiler.tool != "nsys" else RemoteTaskRunner
