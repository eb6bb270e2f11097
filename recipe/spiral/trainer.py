"""SpiralTrainer: verl's PPO trainer, with games in place of prompts.

Only hooks of verl's trainer are overridden here; each has a contract test. The data's way: games get their keys and
seats, and are launched; when their rows are sampled, they are accounted for (``training.step``); each row has its
role's baseline, the estimator makes advantages, the baselines move, and verl's workers take a fixed number of optimizer
steps. Records of games come through a channel of their own; this class is the only one that writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.debug import marked_timer

from . import extensions
from .opponents.engine_settings import has_adapter, models_served
from .players.seeds import GameKey
from .processes.interrupts import STOP, STOPPED
from .processes.launch import collect_less
from .processes.run_log import say_now
from .rollouts import channel
from .training.credit import GRPO, RAE, Filters, baselines_of
from .training.in_flight import InFlight, Mixin
from .training.launched import Launch, Launched, launch
from .training.metrics import speed_metrics, training_metrics, validation_metrics
from .training.rows import Rows, keep
from .training.run_state import RunState
from .training.step import Step, account, deal, policy_ranks, rows_at_once
from .training.sync_buffer import NO_ROWS
from .workers.engine import opponent_engines
from .workers.engine.client import GameClient
from .workers.mini_batch_worker import MINI_BATCHES
from .workers.policy_worker import use_our_workers


class SpiralTrainer(Mixin):
    """A mixin over verl's trainer class for a mode; see ``trainer_class``."""

    config: DictConfig
    total_training_steps: int
    checkpoint_callback: Any
    #: What the policy's requests go through.
    client: type[GameClient] = GameClient

    def __init__(self, config: DictConfig) -> None:
        self.launched = Launched()
        self.state = RunState(config, self.launched)
        #: What trains in place of the policy gradient; None: nothing.
        kind = extensions.objectives().get(config.algorithm.adv_estimator)
        self.objective = None if kind is None else kind.make(config)
        self.filters = Filters.from_config(config)
        self.state.console.objective = self.objective
        #: The update that is under way, or was the last.
        self.current = Step(0)
        #: The engine of opponents that the run serves itself.
        self.opponents: opponent_engines.OpponentEngine | None = None
        #: What measures the policy at each validation.
        self.exact: list[Callable[[], extensions.Measured]] = []
        self._alarms: list[str] = []
        self._stopped_by: str | None = None
        self._interrupted = False
        if has_adapter(config) and (served := models_served(config)):
            opponent_engines.make_room(config, served)
        super().__init__(config)
        self.replay_buffer.length = self.state.game_length

    # -- launching -----------------------------------------------------------------------------------------------------

    def prepare_step(self) -> Any:
        """A batch of games is launched here; one of turns is launched by the buffer that samples it."""
        return super().prepare_step() if self.config.batch_unit == "games" else {}

    def _submit_batch_to_rollout(self, batch: Any) -> Any:
        """Games get their seats before verl stores them, so that one that is played again has the same."""
        launch(batch, self.launched, self.state.league)
        return super()._submit_batch_to_rollout(batch)

    def fit(self, agent_loop_manager: Any) -> None:
        super().fit(agent_loop_manager)
        self.state.records.wait()
        if self._stopped_by is None:
            self.state.console.finish()
        else:
            self.state.console.say(self._stopped_by)
            if not self._interrupted:
                (Path(self.config.run_dir) / STOPPED).write_text(self._stopped_by, encoding="utf-8")
        for line in [line for watcher in self.state.watchers for line in watcher.finish()]:
            self.state.console.say(line)

    def get_llm_client(self) -> Any:
        managers = self._rollout_server_managers()
        servers = [replica.servers[0] for manager in managers for replica in manager.get_replicas()]
        slots = () if self.opponents is None else self.opponents.handles
        return managers[-1].get_client(self.client, servers=servers, slots=slots)

    def on_init_end(self) -> None:
        """While the policy's engine sleeps, the opponents' take their part of the devices."""
        league = self.state.league
        if served := models_served(self.config):
            league.engine = self.opponents = opponent_engines.start(self, served)
            self.opponents.sleep()
        for extension in extensions.loaded():
            exact = extension.validate(self.config, self.tokenizer, self.actor_rollout_wg)
            self.exact += [] if exact is None else [exact]
        if self.global_steps == 0 and league.due(0):
            league.join(0, self.actor_rollout_wg.save_snapshot)
        super().on_init_end()

    def on_train_begin(self) -> None:
        super().on_train_begin()
        collect_less()
        # verl has counted on to the first step already
        self.state.console.start(self.global_steps - 1, self.total_training_steps)

    def on_step_begin(self) -> None:
        super().on_step_begin()
        with marked_timer("load_opponents", self.timing_raw):
            self.state.league.begin_step(self.global_steps)

    def on_sample_end(self) -> None:
        """Games are over, or go on in the next step; but with devices of their own engines play meanwhile."""
        super().on_sample_end()
        if self.opponents is not None and self.config.trainer.v1.trainer_mode != "separate_async":
            self.opponents.sleep()

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], *args: Any, **kwargs: Any) -> Any:
        try:
            batch = super()._step_once(metrics, timing_raw, *args, **kwargs)
        except RuntimeError as error:
            # Where every game failed, verl says that there are no rows; the games say why.
            channel.raise_failures(self.launched.games())
            if NO_ROWS in str(error):
                games, launches = self._played()
                Rows(games.records, launches).check_complete([])
                games.check_any(self.global_steps)
            raise
        self._update_reference(metrics, timing_raw)
        if self.state.league.due(self.global_steps):
            with marked_timer("snapshot", timing_raw):
                self.state.league.join(self.global_steps, self.actor_rollout_wg.save_snapshot)
        return batch

    # -- sampling and balancing ----------------------------------------------------------------------------------------

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The first hook with sampled rows: account for their games, and deal what is trained to mini-batches and
        ranks, with padding where a mini-batch lacks rows.

        verl orders rows by their arrival; from here on the order is that of the games' keys, whatever came first. Its
        own balancing is not called: all of its order would be replaced.
        """
        config = self.config
        games, launches = self._played()
        baselines = baselines_of(config.algorithm, self.state.baselines, games.records)
        # in the asynchronous modes the buffer gives no more games than that
        in_rounds = config.batch_unit == "turns" and config.trainer.v1.trainer_mode == "sync"
        turns = int(config.data.train_batch_size) if in_rounds else None
        self.current = step = account(
            self.global_steps, games, launches, batch.keys, baselines, self.filters, turns, self.objective
        )
        ranks, mini_batches = policy_ranks(self.actor_rollout_wg), int(config.num_mini_batches)
        together = 1 if self.objective is None else self.objective.together
        multiple = ranks * mini_batches * rows_at_once(config.actor_rollout_ref) * together
        end = self.tokenizer.eos_token_id
        batch = upsample_batch_to_divisible_size(keep(batch, step.keys), multiple, end)  # padding comes last
        lengths = [int(tag["seq_len"]) for tag in batch.tags]
        shares, shared = deal(lengths, len(step.keys), mini_batches, ranks, together)
        batch.reorder([row for share in shares for row in share])
        metrics |= shared
        return batch

    def _played(self) -> tuple[channel.Played, list[Launch]]:
        """The games that the present step accounts for, and how they were launched."""
        launches = self.launched.take(self.launched)
        return channel.take(launch.key for launch in launches), launches

    # -- advantages ----------------------------------------------------------------------------------------------------

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        step, algorithm, state = self.current, self.config.algorithm, self.state
        if step.chosen is None:
            scale = float(algorithm.reward_scale)
            estimator = step.rows.estimator(batch.keys, step.baselines, float(algorithm.gamma), scale)
            ADV_ESTIMATOR_REGISTRY.update({RAE: estimator, GRPO: estimator})
        else:
            step.chosen.mark(batch.keys)
        batch = super()._compute_advantage(batch, metrics)
        step.rows.note_training(batch, step.baselines)
        if algorithm.adv_estimator == RAE:
            state.baselines.update(step.records)
        state.league.count(step.records)
        metrics |= training_metrics(step.records, step.games.discarded) | state.league.metrics(self.global_steps)
        metrics |= {} if step.chosen is None else step.chosen.metrics(batch.partition_id)
        return batch

    # -- the update ----------------------------------------------------------------------------------------------------

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return self._update(super()._update_actor, self.actor_rollout_wg, "actor", batch, metrics)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return self._update(super()._update_critic, self.critic_wg, "critic", batch, metrics)

    def _update(self, update: Callable[..., Any], workers: Any, of: str, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update, in which our workers cut what they get into M mini-batches. Where nothing is trained, the
        schedule of the learning rate goes on all the same: it counts training steps."""
        if not self.current.trains:
            metrics[f"{of}/lr"] = workers.skip_update()[0]
            return batch
        batch.extra_info.update({MINI_BATCHES: int(self.config.num_mini_batches)})
        batch.extra_info.update({} if self.objective is None else self.objective.batch_info)
        return update(batch, metrics)

    # -- the end of a step ---------------------------------------------------------------------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """When a step has its metrics and verl has not saved yet: a checkpoint's games are on the disk before it, and
        it knows what watchers have seen."""
        batch = super().step(metrics, timing_raw)
        step, watchers = self.current, self.state.watchers
        self.state.write_records("train", step.number, step.games)
        self._show("train", step.number, step.games)
        self._alarms = [alarm for watcher in watchers for alarm in watcher.step(metrics)]
        why = next((watcher.stop for watcher in watchers if watcher.stop), "")
        if (Path(self.config.run_dir) / STOP).exists():
            self._interrupted, why = True, "a signal"
        if why and self.global_steps < self.total_training_steps:
            self._stopped_by = f"stopped after step {step.number} by {why}"
            self.total_training_steps = self.global_steps  # verl's loop ends after this step
        return batch

    def on_step_end(self) -> None:
        """Where verl's loop ends sooner than it knew when the step began, a checkpoint: as verl's, while the engine
        sleeps, which wakes and takes its memory with the new weights."""
        every = self.config.trainer.save_freq
        if self._stopped_by is not None and every > 0 and self.global_steps % every:
            with marked_timer("save_checkpoint", self.timing_raw):
                self._save_checkpoint()
        super().on_step_end()

    def on_train_end(self) -> None:
        """Where verl's loop has ended sooner than it knew, or had no step left: the validation of the last step, if it
        is missing."""
        super().on_train_end()
        self.global_steps -= 1  # verl has counted on
        wanted = self.config.trainer.test_freq > 0 and not self._interrupted
        if wanted and not self.state.metrics.validated(self.global_steps):
            self.on_validate_begin()
            metrics = self._validate()
            self.on_validate_end()
            self.logger.log(data=metrics, step=self.global_steps)

    # -- the reference policy and checkpoints --------------------------------------------------------------------------

    def _init_resource_pool_mgr(self) -> None:
        say_now("the policy's workers start")
        super()._init_resource_pool_mgr()
        use_our_workers(self.role_worker_mapping)

    def _update_reference(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> None:
        every = self.config.ref_update_freq
        if every is None:
            return
        due = self.global_steps % every == 0
        if due:
            with marked_timer("update_ref", timing_raw):
                self.actor_rollout_wg.update_reference(float(self.config.ref_update_rate))
        metrics["ref/updated"] = float(due)

    def _save_checkpoint(self) -> None:
        """verl's, into a folder beside the checkpoints; it becomes a checkpoint when it is whole, and on the disk."""
        say_now("a checkpoint is saved")
        step, callback = self.global_steps, self.checkpoint_callback
        saved = self.state.save(step, lambda to: self.actor_rollout_wg.save_reference(to), self._save_models)
        callback.on_save(trainer=self, global_step=step, checkpoint_dir=str(saved), async_save=False)

    def _save_models(self, folder: Path) -> None:
        """verl's part of a checkpoint, below ``folder``."""
        settings, callback = self.config.trainer, self.checkpoint_callback
        final = settings.default_local_dir
        settings.default_local_dir, self.checkpoint_callback = str(folder), CheckpointCallback()
        try:
            super()._save_checkpoint()
        finally:
            settings.default_local_dir, self.checkpoint_callback = final, callback

    def _load_checkpoint(self) -> None:
        self.state.checkpoints.clear()
        super()._load_checkpoint()
        self.state.restore(self.global_steps, lambda place: self.actor_rollout_wg.load_reference(place))

    # -- metrics and console -------------------------------------------------------------------------------------------

    @property
    def logger(self) -> Any:
        """verl's trackers, which verl sets when they are there; the run's own file of metrics is one more."""
        return self._trackers

    @logger.setter
    def logger(self, trackers: Any) -> None:
        trackers.logger["spiral"] = self.state.metrics
        self._trackers = trackers

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], *args: Any, **kwargs: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, *args, **kwargs)
        metrics |= speed_metrics(len(self.current.games.records), timing_raw)
        self.state.console.step(self.global_steps, metrics, timing_raw)
        for alarm in self._alarms:
            self.state.console.say(alarm)
        self._alarms = []

    # -- validation ----------------------------------------------------------------------------------------------------

    def _validate(self) -> Any:
        try:
            return super()._validate()
        except (RuntimeError, ValueError):
            channel.raise_failures(self._validated)
            games = channel.take(self._validated)
            if games.records:
                raise
            return self._account_for_validation(games)  # no game counts: there is nothing more to know

    def _val_metrics_update(self, data_sources: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        return self._account_for_validation(channel.take(self._validated))

    @property
    def _validated(self) -> list[GameKey]:
        """The games and questions of a validation, which are those of the data set."""
        rows = (self.val_dataset[index] for index in range(len(self.val_dataset)))
        return [GameKey(**row["key"]) for row in rows]

    def _account_for_validation(self, games: channel.Played) -> dict[str, float]:
        step, console = self.global_steps, self.state.console
        for record in (*games.records, *games.discarded):
            record.key = record.key.at_step(step)
        self.state.write_records("val", step, games)
        self._show("val", step, games)
        metrics = validation_metrics([*games.records, *games.discarded])
        measured = [measure() for measure in self.exact]
        for exact in measured:
            metrics |= exact.metrics
        console.validation(step, metrics, [line for exact in measured for line in exact.lines])
        if games.discarded:
            metrics["val-aux/discarded/void"] = float(len(games.discarded))
        return metrics

    def _maybe_log_val_generations(self, *args: Any, **kwargs: Any) -> None:
        """verl's table has a row for each response; ours, of games, comes with the records."""

    def _show(self, split: str, step: int, games: channel.Played) -> None:
        file = self.state.records.file(split, step).relative_to(self.config.run_dir)
        for watcher in self.state.watchers:
            for line in watcher.games(self.logger.logger, split, step, games.records, games.discarded, str(file)):
                self.state.console.say(line)


def trainer_class(mode: str) -> type:
    """SPIRAL's trainer for one of verl's modes; the mode's name stays verl's, which compares it literally."""
    ours = (SpiralTrainer,) if mode == "sync" else (InFlight, SpiralTrainer)
    return type("SpiralTrainer", (*ours, get_trainer_cls(mode)), {"__doc__": SpiralTrainer.__doc__})
