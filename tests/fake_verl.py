"""verl's trainer without workers: its own ``fit``, around steps that do nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.spiral import main_spiral
from recipe.spiral.trainer import SpiralTrainer
from recipe.spiral.training.step import Step
from tests.fake_queue import FakeQueue
from tests.made_configs import config as made_config

#: The defaults of the core and of lab.
_RECIPE = Path(main_spiral.__file__).parent
CONFIG: Any = OmegaConf.merge(
    *(OmegaConf.load(_RECIPE / name) for name in ("config/spiral_trainer.yaml", "lab/config/extension/lab.yaml"))
)


class Verl(PPOTrainer):
    """Notes what it is asked to do; ``steps`` are the metrics of its steps."""

    steps: list[dict[str, float]]

    def __init__(self, config: Any) -> None:
        self.config = config
        self.checkpoint_callback = CheckpointCallback()
        self.done: list[str] = []
        self.use_critic = False
        self.global_steps = 0
        self.trainer_mode = "sync"
        self.replay_buffer = SimpleNamespace()
        self.steps_per_epoch = 1000
        self.total_training_steps = config.trainer.total_training_steps

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        metrics |= {"turns/count": 1.0, "turns/response_tokens": 1.0, "turns/invalid": 0.0, "turns/entropy": 0.0}
        metrics |= self.steps.pop(0)
        self.current = Step(self.global_steps)  # as ``_balance_batch`` has it
        return KVBatchMeta(partition_id="train", keys=[], tags=[])

    def _pass(self) -> None:
        pass

    on_init_end = on_step_end = on_sample_end = _start_profiling = _stop_profiling = _load_checkpoint = _pass

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        pass

    def _save_checkpoint(self) -> None:
        self.done.append(f"save {self.global_steps}")
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        (folder / "actor").mkdir(parents=True, exist_ok=True)
        shards = [f"actor/{kind}_world_size_1_rank_0.pt" for kind in ("model", "optim", "extra_state")]
        for part in ("data.pt", *shards):
            torch.save({}, folder / part)

    def _validate(self) -> dict[str, float]:
        self.done.append(f"validate {self.global_steps}")
        return {"val-core/win": 1.0}

    def _shutdown_dump_executor(self) -> None:
        self.done.append("end")


def trainer(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path, *overrides: str, verl: type[Verl] = Verl, **attributes: Any
) -> Any:
    """SpiralTrainer over ``verl``; ``overrides`` as on the command line."""
    FakeQueue.install(monkeypatch)
    for unused in ("SkipManager", "ValidationGenerationsLogger", "DapoFilteredRewardTableLogger"):
        monkeypatch.setattr(f"verl.trainer.ppo.v1.trainer_base.{unused}", _Anything())
    monkeypatch.setattr(SpiralTrainer, "_validate", verl._validate)
    config = made_config(
        run_dir,
        *(f"run_dir={run_dir}", "trainer.logger=[]", "trainer.total_epochs=1", "trainer.val_before_train=false"),
        *("data.train_batch_size=4", "actor_rollout_ref.rollout.agent.num_workers=1"),
        *("actor_rollout_ref.model.path=model", "global_profiler.steps=null", *overrides),
    )
    made = type("Trainer", (SpiralTrainer, verl), {})(config)
    made.logger = SimpleNamespace(logger={})
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    made.tokenizer = SimpleNamespace(eos_token_id=0)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


class _Anything:
    """Takes every call."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self
