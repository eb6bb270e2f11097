"""SpiralTrainer: verl's PPO trainer, with games in place of prompts.

Only hooks of verl's trainer are overridden here; each has a contract test. The data's way: rows are sorted by their
game's key as soon as they are sampled, each is given its role's baseline, the estimator makes advantages, the baselines
move, and verl's workers take a fixed number of optimizer steps. Games are accounted for as games, from
the records that come through a channel of their own; this class is the only one that writes them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.debug import marked_timer

from . import game_channel, rows
from .advantage import GroupBaselines, RoleBaselines
from .checkpoints import REFERENCE, read_state, remove_old_references, write_state
from .console import Console
from .estimator import GRPO, RAE, row_facts
from .filters import Filters
from .metrics import training_metrics, validation_metrics
from .records import GameRecord, RecordFolder
from .reference import use_reference_worker
from .seeds import GameKey


class SpiralTrainer:
    """A mixin over verl's trainer class for a mode; see ``trainer_class``."""

    config: DictConfig
    global_steps: int

    def __init__(self, config: DictConfig) -> None:
        rae = config.algorithm.rae
        self.baselines = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline)
        self.filters = _filters(config)
        self.folder = RecordFolder(Path(config.run_dir) / "games")
        self.console = Console(Path(config.run_dir))
        self._launched: dict[str, list[GameKey]] = {"train": [], "val": []}
        self._games: game_channel.Played = game_channel.Played([], [])
        self._rows: list[rows.Row | None] = []
        super().__init__(config)  # type: ignore[call-arg]

    # -- launching -----------------------------------------------------------------------------------------------------

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()  # type: ignore[misc]
        buffer.poll_interval = self.config.poll_interval
        return buffer

    def fit(self, agent_loop_manager: Any) -> None:
        super().fit(_Launches(agent_loop_manager, self._launched))  # type: ignore[misc]
        self.console.finish()

    def on_train_begin(self) -> None:
        super().on_train_begin()  # type: ignore[misc]
        # verl has counted on to the first step already
        self.console.start(self.global_steps - 1, self.total_training_steps)  # type: ignore[attr-defined]

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], *args: Any, **kwargs: Any) -> Any:
        try:
            batch = super()._step_once(metrics, timing_raw, *args, **kwargs)  # type: ignore[misc]
        except RuntimeError:
            # Where every game failed, verl says that there are no rows; the games say why.
            game_channel.raise_failures(self._launched["train"])
            raise
        self._update_reference(metrics, timing_raw)
        return batch

    # -- sampling and balancing ----------------------------------------------------------------------------------------

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Rows are padded until every rank has as many in each of the M mini-batches."""
        return dp_size * int(self.config.num_mini_batches)

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The first that is done with sampled rows: account for their games, and put them into the order of keys.

        verl orders rows by their arrival; from here on the order is that of the games' keys, whatever came first.
        """
        keys, self._launched["train"] = self._launched["train"], []
        self._games = game_channel.take(keys)
        self._set_baselines(self._games.records)
        sampled = rows.fetch(batch, self._games.records)
        in_order = sorted(range(len(batch)), key=lambda i: _order(sampled[i]))
        batch.reorder(in_order)
        batch = rows.leave_out(batch, [sampled[i] for i in in_order], self.filters)
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)  # type: ignore[misc]
        self._rows = rows.fetch(batch, self._games.records)
        return batch

    # -- advantages ----------------------------------------------------------------------------------------------------

    def _set_baselines(self, records: list[GameRecord]) -> None:
        """Write into the records what outcomes are compared with: b as it is before this batch, or the group's mean."""
        algorithm = self.config.algorithm
        self._scale = lambda record, role: float(algorithm.reward_scale)
        if algorithm.adv_estimator == RAE:
            for record in records:
                record.baselines = self.baselines.of(record)
        elif algorithm.adv_estimator == GRPO:
            groups = GroupBaselines(records, algorithm.norm_adv_by_std_in_grpo)
            self._scale = lambda record, role: float(algorithm.reward_scale) * groups.scale(record, role)
            for record in records:
                record.baselines = groups.of(record)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        facts = rows.facts(self._rows, float(self.config.algorithm.gamma), self._scale)
        with row_facts(facts):
            batch = super()._compute_advantage(batch, metrics)  # type: ignore[misc]
        advantages = rows.mean_advantages(batch) if facts.advantages is None else facts.advantages
        for row, advantage in zip(self._rows, advantages.tolist(), strict=True):
            if row is not None and row.turn.left_out is None:
                row.turn.advantage = advantage
        if self.config.algorithm.adv_estimator == RAE:
            self.baselines.update(self._games.records)
        metrics.update(training_metrics(self._games.records, self._games.discarded))
        return batch

    # -- the update ----------------------------------------------------------------------------------------------------

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        workers = self.actor_rollout_wg
        self.actor_rollout_wg = self._fixed_mini_batches(workers)
        try:
            return super()._update_actor(batch, metrics)  # type: ignore[misc]
        finally:
            self.actor_rollout_wg = workers

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        workers = self.critic_wg
        self.critic_wg = self._fixed_mini_batches(workers)
        try:
            return super()._update_critic(batch, metrics)  # type: ignore[misc]
        finally:
            self.critic_wg = workers

    def _fixed_mini_batches(self, workers: Any) -> _FixedMiniBatches:
        real_rows = sum(map(rows.trained, self._rows))
        return _FixedMiniBatches(workers, int(self.config.num_mini_batches), max(real_rows, 1))

    # -- the reference policy ------------------------------------------------------------------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()  # type: ignore[misc]
        if self.config.ref_update_freq is not None:
            use_reference_worker(self.role_worker_mapping)  # type: ignore[attr-defined]

    def _update_reference(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> None:
        every = self.config.ref_update_freq
        if every is None:
            return
        due = self.global_steps % every == 0
        if due:
            with marked_timer("update_ref", timing_raw):
                self.actor_rollout_wg.update_reference()
        metrics["ref/updated"] = float(due)

    # -- metrics, records, console -------------------------------------------------------------------------------------

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], *args: Any, **kwargs: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, *args, **kwargs)  # type: ignore[misc]
        self._write_records("train", self._games)
        seconds = timing_raw["step"]
        metrics |= {
            "perf/games_per_second": len(self._games.records) / seconds,
            "perf/turns_per_second": metrics["turns/count"] / seconds,
            "perf/response_tokens_per_second": metrics["turns/count"] * metrics["turns/response_tokens"] / seconds,
        }
        self.console.step(self.global_steps, metrics, timing_raw)

    def _write_records(self, split: str, games: game_channel.Played) -> None:
        every = int(self.config.records.every)
        if every <= 0 or self.global_steps % every:
            return
        records = [*games.records, *games.discarded]
        if not self.config.records.tokens:
            records = [_without_tokens(record) for record in records]
        self.folder.write(split, self.global_steps, records)

    # -- validation ----------------------------------------------------------------------------------------------------

    def _validate(self) -> Any:
        try:
            return super()._validate()  # type: ignore[misc]
        except (RuntimeError, ValueError):
            game_channel.raise_failures(self._launched["val"])
            raise

    def _val_metrics_update(self, data_sources: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        keys, self._launched["val"] = self._launched["val"], []
        games = game_channel.take(keys)
        for record in games.records:
            record.key = record.key.at_step(self.global_steps)
        self._write_records("val", games)
        metrics = validation_metrics(games.records)
        self.console.validation(self.global_steps, metrics)
        return metrics

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """Our state goes first: verl ends a checkpoint by naming it the latest."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        write_state(
            folder, {"step": self.global_steps, "seed": self.config.seed, "baselines": self.baselines.state_dict()}
        )
        if self.config.ref_update_freq is not None:
            self.actor_rollout_wg.save_reference(str(folder / REFERENCE))
        super()._save_checkpoint()  # type: ignore[misc]
        remove_old_references(folder.parent)

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()  # type: ignore[misc]
        if self.global_steps > 0:
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            else:
                folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            self.baselines.load_state_dict(read_state(folder)["baselines"])
            if self.config.ref_update_freq is not None and (folder / REFERENCE).is_dir():
                self.actor_rollout_wg.load_reference(str((folder / REFERENCE).absolute()))
        self.folder.cut_back(self.global_steps)


class _Launches:
    """The agent-loop manager, with a list of the games that were launched through it."""

    def __init__(self, manager: Any, launched: dict[str, list[GameKey]]) -> None:
        self._manager = manager
        self._launched = launched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def generate_sequences(self, batch: Any) -> Any:
        for key in list(batch["key"]):
            game_key = GameKey(**key)
            self._launched[game_key.split].append(game_key)
        return self._manager.generate_sequences(batch)


class _FixedMiniBatches:
    """Workers that are told to take M optimizer steps an epoch, however many rows there are.

    verl would send a fixed number of rows a step, and so take more steps the longer the games. The loss of a mini-batch
    is divided by the number of real rows / M, which makes it the mean over turns: padding counts for nothing.
    """

    def __init__(self, workers: Any, num_mini_batches: int, real_rows: int) -> None:
        self._workers = workers
        self._num_mini_batches = num_mini_batches
        self._real_rows = real_rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)

    def update_actor(self, batch: Any) -> Any:
        return self._workers.update_actor(self._divided(batch))

    def train_mini_batch(self, batch: Any) -> Any:
        return self._workers.train_mini_batch(self._divided(batch))

    def _divided(self, batch: Any) -> Any:
        batch.extra_info["mini_batch_size"] = len(batch) // self._num_mini_batches
        batch.extra_info["global_batch_size"] = self._real_rows / self._num_mini_batches
        return batch


def _order(row: rows.Row | None) -> tuple[GameKey, int, int]:
    assert row is not None, "rows are sorted before padding is added"
    return row.order


def _filters(config: DictConfig) -> Filters:
    algorithm = config.algorithm
    return Filters(config.rules.cut_off == "mask", algorithm.filter_draws, algorithm.filter_zero_advantages)


def _without_tokens(record: GameRecord) -> GameRecord:
    return dataclasses.replace(record, turns=[dataclasses.replace(turn, tokens=None) for turn in record.turns])


def trainer_class(mode: str) -> type:
    """SPIRAL's trainer for one of verl's modes; the mode's name stays verl's, which compares it literally."""
    return type("SpiralTrainer", (SpiralTrainer, get_trainer_cls(mode)), {"__doc__": SpiralTrainer.__doc__})
