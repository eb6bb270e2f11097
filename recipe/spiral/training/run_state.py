"""What a run has besides its models: all state that goes into checkpoints, and what it writes into its folder.

A checkpoint holds baselines, the league (pool, win rates), what watchers remember and the games' mean length.
Beside the checkpoints lie the records of games, and the lines for people.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..extensions import loaded
from ..opponents.league import League
from ..players.seeds import GameKey
from ..rae import RoleBaselines
from ..rollouts.channel import Played
from ..storage.checkpoints import (
    REFERENCE,
    CheckpointFolder,
    is_of,
    kept_settings,
    read_state,
    resumed_from,
    write_state,
)
from ..storage.record_writer import RecordWriter
from ..storage.run_files import MetricsFile
from .console import Console
from .launched import Launched
from .sync_buffer import GameLength


class RunState:
    """The state of a run, which a resumed run goes on from.

    Attributes:
        in_flight: of the checkpoint that the run goes on from: the games that were neither trained nor dropped.
        game_length: how many rows a game gives.
        metrics: all that is logged, in the run's folder.
        watchers: what extensions have the training watched by.
        records_after: the step after which this folder's records begin: 0, or of another run's checkpoint.
    """

    def __init__(self, config: DictConfig, launched: Launched) -> None:
        rae, trainer = config.algorithm.rae, config.trainer
        run_dir = Path(config.run_dir)
        self.config = config
        self.in_flight: list[GameKey] = []
        self._launched = launched
        self.baselines = RoleBaselines(
            rae.decay, rae.initial, rae["update"], enabled=rae.baseline, by_opponent=rae.by_opponent
        )
        self.game_length = GameLength()
        asked = (extension.watcher(config) for extension in loaded())
        self.watchers = [watcher for watcher in asked if watcher is not None]
        self.league = League(config)
        self.records = RecordWriter(run_dir / "games")
        self.metrics = MetricsFile(run_dir)
        self.console = Console(run_dir)
        self.league.folder.say = self.console.say
        other = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else None
        ranks = trainer.n_gpus_per_node * trainer.nnodes
        self.checkpoints = CheckpointFolder(
            Path(trainer.default_local_dir), ranks, trainer.max_actor_ckpt_to_keep, other, self.console.say
        )
        self.records_after = 0

    # -- games ---------------------------------------------------------------------------------------------------------

    def write_records(self, split: str, step: int, games: Played) -> None:
        """Have a step's games written, beside what comes next, if ``records.every`` includes the step."""
        every = int(self.config.records.every)
        if split == "train" and (every <= 0 or step % every):
            return
        self.records.write_beside(split, step, [*games.records, *games.discarded])

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, step: int, save_reference: Callable[[str], Any], save_models: Callable[[Path], None]) -> Path:
        """Write a checkpoint, which is whole, on the disk and the latest, or not there. The games that it counts are on
        the disk before it.

        Args:
            save_reference: writes the reference policy into a folder; used where it is refreshed in training.
            save_models: writes verl's part below a folder.

        Returns:
            Its folder.
        """
        config = self.config
        state = {
            "step": step,
            "run_dir": str(config.run_dir),
            "ranks": self.checkpoints.ranks,
            "settings": kept_settings(config),
            "records_after": self.records_after,
            "in_flight": [[key.step, key.index, key.group] for key in sorted(self._launched.games())],
            "game_length": vars(self.game_length),
            "baselines": self.baselines.state_dict(),
            "guard": {name: kept for watcher in self.watchers for name, kept in watcher.state_dict().items()},
            "league": self.league.state_dict(),
        }
        self.records.wait()
        with self.checkpoints.saving(step) as folder:
            write_state(folder, state)
            self.league.save_into(folder)
            if config.ref_update_freq is not None:
                save_reference(str(folder / REFERENCE))
            save_models(folder.parent)
        return self.checkpoints.folder(step)

    def restore(self, step: int, load_reference: Callable[[str], Any]) -> None:
        """Go on from the checkpoint that verl has loaded, with step 0 from none; remove what this run wrote after it.
        ``load_reference`` reads the reference policy from a folder."""
        state: dict[str, Any] = {}
        folder = resumed_from(self.config) if step > 0 else None
        if folder is not None:
            state = read_state(folder)
            self.baselines.load_state_dict(state["baselines"])
            seed = int(self.config.seed)
            self.in_flight = [GameKey("train", seed, at, index, group=group) for at, index, group in state["in_flight"]]
            for watcher in self.watchers:
                watcher.load_state_dict(state["guard"])
            if self.config.batch_unit == "turns":
                vars(self.game_length).update(state["game_length"])
            if self.config.ref_update_freq is not None and (folder / REFERENCE).is_dir():
                load_reference(str((folder / REFERENCE).absolute()))
        own = folder is not None and is_of(folder, self.checkpoints.path)
        self.records_after = state["records_after"] if own else step
        if own and not self.config.trainer.get("val_only"):  # which goes on with nothing
            for later in self.checkpoints.go_back(step):
                self.console.say(f"{later}: a later checkpoint, which the run went back from, is here now")
            for written in (self.records, self.metrics):
                written.cut_back(step)
        self.league.restore(state.get("league", {}), folder, step)
