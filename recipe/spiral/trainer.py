"""SpiralTrainer: verl's PPO trainer, with games in place of prompts.

Only hooks of verl's trainer are overridden here; each has a contract test. The data's way: rows are sorted by their
game's key as soon as they are sampled, each is given its role's baseline, the estimator makes advantages, the baselines
move, and verl's workers take a fixed number of optimizer steps. Games are accounted for as games, from
the records that come through a channel of their own; this class is the only one that writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.debug import marked_timer

from .opponents.engine import has_adapter
from .play.records import GameRecord
from .play.seeds import GameKey
from .rae import GroupBaselines
from .serving import channel
from .training import rows
from .training.checkpointing import Keeping
from .training.estimator import GRPO, RAE, row_facts
from .training.filters import Filters
from .training.guard import STOPPED
from .training.metrics import reasoning_metrics, training_metrics, validation_metrics
from .training.proxies import FixedMiniBatches, Launches
from .training.turn_batches import NO_ROWS, TurnBuffer, cut
from .workers.engine import opposition
from .workers.policy_worker import use_policy_worker


class SpiralTrainer(Keeping):
    """A mixin over verl's trainer class for a mode; see ``trainer_class``."""

    def __init__(self, config: DictConfig) -> None:
        self.keep(config)
        self.filters = _filters(config)
        self.in_turns = config.batch_unit == "turns"
        self._alarms: list[str] = []
        self._stopped_by: str | None = None
        self._launched: dict[str, list[GameKey]] = {"train": [], "val": [], "question": []}
        self._games: channel.Played = channel.Played([], [])
        self._rows: list[rows.Row | None] = []
        self.opponents: opposition.OpponentEngine | None = None
        if self.league.slots and has_adapter(config):
            opposition.make_room(config, self.league.slots)
        super().__init__(config)  # type: ignore[call-arg]

    # -- launching -----------------------------------------------------------------------------------------------------

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()  # type: ignore[misc]
        buffer.poll_interval = self.config.poll_interval
        if not self.in_turns:
            return buffer
        return TurnBuffer(buffer, self._add_prompts_to_generate, self.game_length)  # type: ignore[attr-defined]

    def prepare_step(self) -> Any:
        """A batch of games is launched here; one of turns is launched where it is sampled."""
        return {} if self.in_turns else super().prepare_step()  # type: ignore[misc]

    def fit(self, agent_loop_manager: Any) -> None:
        super().fit(Launches(agent_loop_manager, self._launched, self.league))  # type: ignore[misc]
        if self._stopped_by is None:
            self.console.finish()
        else:
            self.console.say(self._stopped_by)
            (Path(self.config.run_dir) / STOPPED).write_text(self._stopped_by, encoding="utf-8")

    def get_llm_client(self) -> Any:
        client = super().get_llm_client()  # type: ignore[misc]
        return client if self.opponents is None else self.opponents.client(client)

    def on_init_end(self) -> None:
        """While the policy's engine sleeps, the opponents' take their part of the devices."""
        if self.league.slots:
            self.opponents = opposition.start(self.config, self, self.league.slots, has_adapter(self.config))
            self.league.engine = self.opponents
            self.opponents.sleep()
        if self.global_steps == 0 and self.league.due(0):
            self._join_pool(0)
        super().on_init_end()  # type: ignore[misc]

    def on_train_begin(self) -> None:
        super().on_train_begin()  # type: ignore[misc]
        # verl has counted on to the first step already
        self.console.start(self.global_steps - 1, self.total_training_steps)

    def on_step_begin(self) -> None:
        super().on_step_begin()  # type: ignore[misc]
        with marked_timer("load_opponents", self.timing_raw):
            self.league.begin_step(self.global_steps)

    def on_sample_end(self) -> None:
        super().on_sample_end()  # type: ignore[misc]
        self.league.sleep()

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], *args: Any, **kwargs: Any) -> Any:
        try:
            batch = super()._step_once(metrics, timing_raw, *args, **kwargs)  # type: ignore[misc]
        except RuntimeError as error:
            # Where every game failed, verl says that there are no rows; the games say why.
            channel.raise_failures(self._launched["train"])
            if NO_ROWS in str(error):
                games = channel.take(self._launched["train"])
                rows.check_complete([], games.records)
                games.check_any(self.global_steps)
            raise
        self._update_reference(metrics, timing_raw)
        if self.league.due(self.global_steps):
            with marked_timer("snapshot", timing_raw):
                self._join_pool(self.global_steps)
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
        self._games = channel.take(keys)
        if self.in_turns:
            batch, self._games = cut(batch, self._games, int(self.config.data.train_batch_size))
        self._set_baselines(self._games.records)
        sampled = rows.fetch(batch, self._games.records)
        rows.check_complete(sampled, self._games.records)
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
        if facts.advantages is None or facts.kept is None:  # another estimator's
            facts.advantages, facts.kept = rows.mean_advantages(batch)
        rows.note_advantages(self._rows, facts.advantages, facts.kept)
        if self.config.algorithm.adv_estimator == RAE:
            self.baselines.update(self._games.records)
        self.league.count(self._games.records, self._games.discarded, self._games.spent)
        metrics.update(training_metrics(self._games.records, self._games.discarded))
        metrics.update(self.league.metrics(self.global_steps))
        return batch

    # -- the update ----------------------------------------------------------------------------------------------------

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with self._fixed_mini_batches("actor_rollout_wg") as rows_to_train:
            return super()._update_actor(batch, metrics) if rows_to_train else batch  # type: ignore[misc]

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with self._fixed_mini_batches("critic_wg") as rows_to_train:
            return super()._update_critic(batch, metrics) if rows_to_train else batch  # type: ignore[misc]

    @contextmanager
    def _fixed_mini_batches(self, workers: str) -> Iterator[int]:
        """Within it the named workers take M optimizer steps an epoch; gives the number of rows that are trained."""
        original = getattr(self, workers)
        rows_to_train = sum(map(rows.trained, self._rows))
        setattr(self, workers, FixedMiniBatches(original, int(self.config.num_mini_batches), rows_to_train))
        try:
            yield rows_to_train
        finally:
            setattr(self, workers, original)

    # -- the guard -----------------------------------------------------------------------------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """When a step has its metrics and verl has not saved yet: a checkpoint's games are on the disk before it, and
        it knows what the guard has seen."""
        batch = super().step(metrics, timing_raw)  # type: ignore[misc]
        self._write_records("train", self._games)
        settings = self.config.guard
        metrics |= reasoning_metrics(self._games.records, settings.reasoning_chars)
        if settings.action in ("warn", "stop"):
            self._alarms = self.guard.look(metrics)
            metrics |= self.guard.metrics()
        last = self.global_steps >= self.total_training_steps
        if self._alarms and settings.action == "stop" and not last:
            self._stopped_by = f"stopped after step {self.global_steps} by guard.action=stop: {'; '.join(self._alarms)}"
            self.guard.rest()
            self.total_training_steps = self.global_steps  # verl's loop ends after this step
        return batch

    def on_step_end(self) -> None:
        """Where verl's loop ends sooner than it knew when the step began, a checkpoint: as verl's, while the engine
        sleeps, which wakes and takes its memory with the new weights."""
        every = self.config.trainer.save_freq
        if self._stopped_by is not None and every > 0 and self.global_steps % every:
            with marked_timer("save_checkpoint", self.timing_raw):
                self._save_checkpoint()
        super().on_step_end()  # type: ignore[misc]

    def on_train_end(self) -> None:
        """Where verl's loop has ended sooner than it knew: the validation of the last step."""
        super().on_train_end()  # type: ignore[misc]
        if self._stopped_by is None:
            return
        self.global_steps -= 1  # verl has counted on
        settings = self.config.trainer
        if settings.test_freq > 0 and self.global_steps % settings.test_freq:
            self.on_validate_begin()  # type: ignore[attr-defined]
            metrics = self._validate()
            self.on_validate_end()  # type: ignore[attr-defined]
            self.logger.log(data=metrics, step=self.global_steps)  # type: ignore[attr-defined]

    # -- the reference policy ------------------------------------------------------------------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()  # type: ignore[misc]
        if self.config.ref_update_freq is not None or self.league.pool is not None:
            use_policy_worker(self.role_worker_mapping)  # type: ignore[attr-defined]

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
        seconds = timing_raw["step"]
        metrics["disk/unwritten"], self._unwritten = float(self._unwritten), 0
        metrics |= {
            "perf/games_per_second": len(self._games.records) / seconds,
            "perf/turns_per_second": metrics["turns/count"] / seconds,
            "perf/response_tokens_per_second": metrics["turns/count"] * metrics["turns/response_tokens"] / seconds,
        }
        self.console.step(self.global_steps, metrics, timing_raw)
        for alarm in self._alarms:
            self.console.say(f"guard: {alarm}")

    # -- validation ----------------------------------------------------------------------------------------------------

    def _validate(self) -> Any:
        try:
            return super()._validate()  # type: ignore[misc]
        except (RuntimeError, ValueError):
            launched = [*self._launched["val"], *self._launched["question"]]
            channel.raise_failures(launched)
            keys, self._launched["val"] = self._launched["val"], []
            games = channel.take(keys)
            if games.records:
                raise
            return self._account_for_validation(games)  # no game counts: there is nothing more to know

    def _val_metrics_update(self, data_sources: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        keys, self._launched["val"] = self._launched["val"], []
        return self._account_for_validation(channel.take(keys))

    def _account_for_validation(self, games: channel.Played) -> dict[str, float]:
        for record in (*games.records, *games.discarded):
            record.key = record.key.at_step(self.global_steps)
        self._write_records("val", games)
        self.league.budgets.count(games.spent)
        metrics = validation_metrics([*games.records, *games.discarded])
        metrics |= self._judge_answers()
        self.console.validation(self.global_steps, metrics)
        if games.discarded:
            metrics["val-aux/discarded/void"] = float(len(games.discarded))
            self.console.say(
                f"validation at step {self.global_steps}: {len(games.discarded)} games were void, the first: "
                f"{games.discarded[0].reason}"
            )
        return metrics

    def _judge_answers(self) -> dict[str, float]:
        """What the answers to benchmarks' questions come to; the judge has a bounded time for each."""
        keys, self._launched["question"] = self._launched["question"], []
        if not keys:
            return {}
        answers, metrics = self.val_dataset.benchmarks.judge(channel.take_answers(keys))  # type: ignore[attr-defined]
        self._write_answers(answers)
        return metrics


def _order(row: rows.Row | None) -> tuple[GameKey, int, int]:
    assert row is not None, "rows are sorted before padding is added"
    return row.order


def _filters(config: DictConfig) -> Filters:
    algorithm = config.algorithm
    return Filters(config.rules.truncated == "mask", algorithm.filter_draws, algorithm.filter_zero_advantages)


def trainer_class(mode: str) -> type:
    """SPIRAL's trainer for one of verl's modes; the mode's name stays verl's, which compares it literally."""
    return type("SpiralTrainer", (SpiralTrainer, get_trainer_cls(mode)), {"__doc__": SpiralTrainer.__doc__})
