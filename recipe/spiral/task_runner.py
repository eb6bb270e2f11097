"""verl's task runner, with SPIRAL's trainer in place of verl's for the same mode."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.utils.import_utils import load_class_from_fqn

from .processes.launch import ask_wandb
from .processes.pulse import QUEUE
from .processes.run_log import say_now

#: The class under Ray's actor: Ray forbids to inherit from the actor class itself.
_VerlTaskRunner: Any = TaskRunnerV1.__ray_metadata__.modified_class


class TaskRunner(_VerlTaskRunner):
    """Builds the trainer, the agent loops and TransferQueue as verl does, and trains."""

    def run(self, config: DictConfig) -> None:
        say_now("the trainer starts")
        from .rollouts import packed_storage  # noqa: F401  (registers it)

        with suppress(ValueError):
            ray.get_actor("TransferQueueController", namespace=QUEUE)
            raise RuntimeError("this Ray cluster has a run already, and its rows would be mixed with ours; wait for it")
        if "wandb" in config.trainer.logger:
            ask_wandb()
        with ThreadPoolExecutor(1) as aside:
            # verl finds it started; its processes import meanwhile
            queue = aside.submit(tq.init, config.transfer_queue)
            self._import_trainer(config)
            queue.result()
        manager = load_class_from_fqn(config.actor_rollout_ref.rollout.agent.agent_loop_manager_class)
        self.agent_loop_manager = manager.create(config=config, llm_client=None)
        super().run(config)

    def init_agent_loop_manager(self) -> None:
        """Its workers have been starting while the policy's did; here they get to know the engine."""
        self.agent_loop_manager.use(self.trainer.get_llm_client())

    def _import_trainer(self, config: DictConfig) -> None:
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

        from .trainer import trainer_class
        from .workers import engine  # noqa: F401  (registers it)

        mode = config.trainer.v1.trainer_mode
        # verl compares the mode's name literally, so that in this process another class gets the same name.
        TRAINER_REGISTRY[mode] = trainer_class(mode)
        # verl 0.9.1 would print a line there with an argument that loggers do not take
        logging.getLogger("verl.trainer.ppo.v1.trainer_separate_async").setLevel(logging.WARNING)
