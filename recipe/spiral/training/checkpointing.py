"""What of a run is on the disk, written and read back: games, answers, checkpoints, the pool's members; a full disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from ..opponents.league import League
from ..play.records import GameRecord
from ..rae import RoleBaselines
from ..serving import channel
from ..storage.checkpoints import REFERENCE, latest, read_state, write_state
from ..storage.disk import BrokenOff, DiskFull, is_full
from ..storage.record_folder import AnswerFolder, RecordFolder
from ..storage.saving import CheckpointFolder
from .console import Console
from .guard import Guard
from .turn_batches import GameLength


class Keeping:
    """The part of ``SpiralTrainer`` that keeps what has been; a mixin over verl's trainer."""

    config: DictConfig
    global_steps: int
    total_training_steps: int
    timing_raw: dict[str, float]
    actor_rollout_wg: Any
    in_turns: bool

    def keep(self, config: DictConfig) -> None:
        """Make everything that has a state; before verl's constructor."""
        rae, trainer = config.algorithm.rae, config.trainer
        self.baselines = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline, rae.by_opponent)
        self.game_length = GameLength()
        self.guard = Guard.from_settings(config.guard)
        self.league = League(config)
        self.folder = RecordFolder(Path(config.run_dir) / "games")
        self.answers = AnswerFolder(Path(config.run_dir) / "benchmarks")
        self.console = Console(Path(config.run_dir))
        told = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else None
        ranks = trainer.n_gpus_per_node * trainer.nnodes
        self.checkpoints = CheckpointFolder(
            Path(trainer.default_local_dir), ranks, trainer.max_actor_ckpt_to_keep, spare=told
        )
        self._unwritten = 0

    # -- games ---------------------------------------------------------------------------------------------------------

    def _write_records(self, split: str, games: channel.Played) -> None:
        every = int(self.config.records.every)
        if split == "train" and (every <= 0 or self.global_steps % every):
            return
        records = [*games.records, *games.discarded]
        if not self.config.records.tokens:
            records = [_without_tokens(record) for record in records]
        try:
            self.folder.write(split, self.global_steps, records)
        except OSError as error:
            if not is_full(error):
                raise
            what = f"the games of step {self.global_steps} could not be written to {self.folder.path}"
            self._without(DiskFull(f"the disk is full: {what}"))

    def _write_answers(self, answers: Sequence[Mapping[str, Any]]) -> None:
        try:
            self.answers.write(self.global_steps, answers)
        except OSError as error:
            if not is_full(error):
                raise
            what = f"the answers at step {self.global_steps} could not be written to {self.answers.path}"
            self._without(DiskFull(f"the disk is full: {what}"))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """verl's, into a folder beside the checkpoints; it is one of them when it is whole, and on the disk."""
        settings, callback = self.config.trainer, self.checkpoint_callback  # type: ignore[has-type]
        final = settings.default_local_dir
        state = {
            "step": self.global_steps,
            "critic": bool(self.use_critic),  # type: ignore[attr-defined]
            "seed": self.config.seed,
            "batch_unit": self.config.batch_unit,
            "data.train_batch_size": self.config.data.train_batch_size,
            "data.games_per_start": self.config.data.games_per_start,
            "game_length": self.game_length.state_dict(),
            "baselines": self.baselines.state_dict(),
            "guard": self.guard.state_dict(),
            "league": self.league.state_dict(),
        }
        try:
            with self.checkpoints.saving(self.global_steps) as unfinished:
                folder = unfinished / f"global_step_{self.global_steps}"
                write_state(folder, state)
                self.league.save_into(folder)
                if self.config.ref_update_freq is not None:
                    self.actor_rollout_wg.save_reference(str(folder / REFERENCE))
                settings.default_local_dir, self.checkpoint_callback = str(unfinished), CheckpointCallback()
                super()._save_checkpoint()  # type: ignore[misc]
        except DiskFull as full:
            self._without(full)
            return
        finally:
            settings.default_local_dir, self.checkpoint_callback = final, callback
        saved = str(self.checkpoints.folder(self.global_steps))
        callback.on_save(trainer=self, global_step=self.global_steps, checkpoint_dir=saved, async_save=False)
        if shortage := self.checkpoints.shortage():
            self.console.say(shortage)

    def _without(self, full: DiskFull) -> None:
        """Go on without what could not be written, or end; workers that were broken off cannot go on together."""
        apart = isinstance(full, BrokenOff) and self.checkpoints.ranks > 1
        if self.config.checkpoint.on_full_disk == "go_on" and not apart:
            self.console.say(f"{full}; going on without")
            self._unwritten += 1
            return
        step = latest(self.checkpoints.path)
        then = "begin anew" if step is None else f"go on from step {step}"
        why = f"{full}; free some space and start again to {then}"
        self.console.say(why)
        raise DiskFull(why) from full

    def _load_checkpoint(self) -> None:
        self.checkpoints.clear()
        super()._load_checkpoint()  # type: ignore[misc]
        state: dict[str, Any] = {}
        folder = None
        if self.global_steps > 0:
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            else:
                folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            state = read_state(folder)
            self.baselines.load_state_dict(state["baselines"])
            if "guard" in state:  # not in checkpoints of the first versions
                self.guard.load_state_dict(state["guard"])
            if self.in_turns:
                self.game_length.load_state_dict(state["game_length"])
            if self.config.ref_update_freq is not None and (folder / REFERENCE).is_dir():
                self.actor_rollout_wg.load_reference(str((folder / REFERENCE).absolute()))
        self.folder.cut_back(self.global_steps)
        self.answers.cut_back(self.global_steps)
        self._load_league(state.get("league", {}), folder)

    # -- the pool ------------------------------------------------------------------------------------------------------

    def _load_league(self, state: dict[str, Any], folder: Path | None) -> None:
        self.league.say = self.console.say
        self.league.restore(
            state, folder, self.config.fsp.initial, self.config.actor_rollout_ref.model.path, self.global_steps
        )
        if self.league.pool is not None:
            self.console.say(
                self.league.disk(
                    self.actor_rollout_wg.snapshot_size()[0],
                    self.checkpoints.path,
                    self.config.trainer.max_actor_ckpt_to_keep,
                    self.config.trainer.save_freq,
                    self.config.trainer.total_training_steps,
                )
            )

    def _join_pool(self, step: int) -> None:
        """The policy as it is now becomes a member."""
        try:
            self.league.join(step, self.actor_rollout_wg.save_snapshot)
        except Exception as error:
            if not is_full(error):
                raise
            what = f"the policy after step {step} could not be written to {self.league.folder.folder}"
            self._without(DiskFull(f"the disk is full: {what}"))


def _without_tokens(record: GameRecord) -> GameRecord:
    return dataclasses.replace(record, turns=[dataclasses.replace(turn, tokens=None) for turn in record.turns])
