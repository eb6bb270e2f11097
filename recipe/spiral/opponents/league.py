"""Whom the policy plays besides itself: the pool of its past selves, and the opponents that stay what they are.

The trainer's side of it. Before a step, the members to be played are chosen and loaded; where games are launched, each
gets its opponent; after them, results move the ratings; after the update, the policy may become a member. All of this
is in a checkpoint: what is counted in its state, members' weights beside it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ..play.players import ApiSettings
from ..play.records import SELF_PLAY, GameRecord
from ..play.seats import Seat
from ..play.seeds import GameKey
from ..storage.disk import same_disk, size, write_whole
from .budgets import Budget, Spent
from .fixed_opponents import API, MODEL, POOL, FixedOpponent, has_adapter, parse_opponents
from .matchmaking import Matchmaker
from .pool import Outcome, Pool, given_name, snapshot_name
from .pool_folder import PoolFolder, disk_line, materialise, members_of, missing_files
from .pool_sources import local

#: What was spent on endpoints, in the run's folder.
LEDGER = "spent.json"
#: The initial model, as a member of the pool.
BASE = "base"


class MemberGone(RuntimeError):
    """The files of a pool's member are gone, and ``fsp.on_missing`` is "stop"."""


class Engine(Protocol):
    """What serves opponents that are models."""

    def hold(self, models: Mapping[str, Path]) -> dict[str, int | None]:
        """Wake up and hold exactly these models; returns each one's slot, None where it is an adapter."""
        ...

    def sleep(self) -> None:
        """Give the devices' memory back."""
        ...


class League:
    """The policy's opponents in training.

    Args:
        pool: past selves; None: there are none.
        folder: the pool's on the disk.
        fixed: the other opponents, also those that only play in validation.
        ratio: the share of games against the pool.
        members_per_step: how many of the pool are played in a step.
        stop_on_missing: whether a member whose files are gone ends the run.
        processes: how many rollout processes there are, among which budgets are shared.
        adapters: whether members are LoRA adapters; then ``BASE``, the model without one, needs no files.
    """

    def __init__(
        self,
        pool: Pool | None,
        folder: PoolFolder,
        fixed: Sequence[FixedOpponent] = (),
        ratio: float = 0.0,
        members_per_step: int = 1,
        stop_on_missing: bool = False,
        adapters: bool = False,
        processes: int = 1,
    ) -> None:
        self.pool = pool
        self.folder = folder
        self.fixed = {opponent.name: opponent for opponent in fixed if opponent.share > 0}
        self.matchmaker = Matchmaker(
            0.0 if pool is None else ratio, {name: one.share for name, one in self.fixed.items()}
        )
        self.members_per_step = members_per_step
        self.engine: Engine | None = None
        self.say: Callable[[str], None] = print
        self._stop_on_missing = stop_on_missing
        self._adapters = adapters
        self.budgets = {
            one.name: Budget(ApiSettings.from_mapping(one.settings).limit, processes)
            for one in fixed
            if one.kind == API
        }
        self._broke: set[str] = set()
        #: What each process may spend on whom in this step.
        self._parts: dict[str, str] = {}
        self._ledger = folder.folder.parent / LEDGER
        #: The state of a pool that the run had, and has not now.
        self._dormant: Mapping[str, Any] | None = None
        self._slots: dict[str, int | None] = {}
        self._playing: list[str] = []
        #: Response tokens that each opponent was asked for in the whole run.
        self._tokens: Counter[str] = Counter()
        #: Games of the last step, by opponent.
        self._games: Counter[str] = Counter()

    @classmethod
    def from_config(cls, config: Any) -> League:
        """By ``fsp`` and ``opponents``.

        Raises:
            ValueError: a setting is wrong; the message names it.
        """
        fsp = config.fsp
        pool = None
        if fsp.enabled:
            pool = Pool(fsp.size, fsp.start_from, fsp.update_interval, fsp.keep, fsp.sample, int(config.seed))
        folder = PoolFolder(Path(config.run_dir) / "pool")
        fixed = parse_opponents(config.opponents)
        stop, adapters = fsp.on_missing == "stop", has_adapter(config)
        processes = int(config.actor_rollout_ref.rollout.agent.num_workers)
        return cls(pool, folder, fixed, float(fsp.ratio), fsp.members_per_step, stop, adapters, processes)

    @property
    def plays(self) -> bool:
        """Whether there is anybody besides the policy."""
        return self.pool is not None or bool(self.fixed)

    @cached_property
    def models(self) -> dict[str, Path]:
        """The fixed opponents that the run serves itself, and where they are."""
        return {name: local(str(one.settings["path"])) for name, one in self.fixed.items() if one.kind == MODEL}

    @property
    def slots(self) -> int:
        """How many models are played in a step at most."""
        fixed = sum(one.kind == MODEL for one in self.fixed.values())
        return fixed + (0 if self.pool is None else self.members_per_step)

    def disk(self, snapshot: int, checkpoints: Path, kept: int | None, save_freq: int, steps: int) -> str:
        """For people: how much of the disk the pool takes at most.

        Args:
            snapshot: bytes that one of the policy takes.
            checkpoints: their folder; on another disk than the pool, they hold copies.
            kept: how many checkpoints stay; None: all.
            save_freq: steps between two of them; none where it is not above 0.
            steps: of the run.
        """
        assert self.pool is not None
        largest = max([snapshot, *(size(self.folder.path(name)) for name in self.folder.names)])
        every = self.pool.update_interval
        made = len(self.folder.names) + (0 if every is None else max(steps - self.pool.start_from, 0) // every + 1)
        leaving = None if every is None or save_freq <= 0 else math.ceil(save_freq / every)
        if not same_disk(self.folder.folder, checkpoints):
            saved = steps // save_freq if save_freq > 0 else 0
            kept, leaving, made = min(kept or saved, saved), None, made * (saved + 1)
        return f"{self.folder.folder}: {disk_line(largest, self.pool.size, kept, leaving, made)}"

    # -- a step --------------------------------------------------------------------------------------------------------

    def begin_step(self, step: int) -> None:
        """Choose whom of the pool to play, and load them.

        Raises:
            MemberGone: the files of one are gone, and that is not to be passed over.
        """
        if not self.plays:
            return
        self._playing = self._choose(step)
        self._parts = {name: budget.part() for name, budget in self.budgets.items()}
        models = {name: self.folder.path(name) for name in self._playing} | self.models
        if self.engine is not None and models:
            self._slots = self.engine.hold(models)

    def _choose(self, step: int) -> list[str]:
        if self.pool is None:
            return []
        while missing := [name for name in self.pool.choose(step, self.members_per_step) if not self._there(name)]:
            self._leave_out(missing)
        return self.pool.choose(step, self.members_per_step)

    def seat(self, games: Sequence[tuple[GameKey, str]]) -> list[Seat]:
        """Who plays each of a step's games, given by (key, game id)."""
        if not self.plays:
            return [Seat() for _ in games]
        seats = []
        for (_, game), assigned in zip(games, self.matchmaker.assign(games, self._playing), strict=True):
            name = assigned.opponent
            if assigned.kind == "self" or (assigned.kind == "fixed" and not self.fixed[name].plays(game)):
                seats.append(Seat())
                continue
            if self._is_broke(name):
                seats.append(Seat())
                continue
            kind = POOL if assigned.kind == "pool" else name
            model, slot = name in self._slots, self._slots.get(name)
            seats.append(Seat(kind, name, assigned.trainable, model, slot, self._parts.get(name, "")))
        return seats

    def allowances(self, opponents: Sequence[str]) -> list[str]:
        """What each process may spend in the validation that begins, for each of its rows."""
        parts = {name: budget.part() for name, budget in self.budgets.items() if name in opponents}
        return [parts.get(name, "") for name in opponents]

    def _is_broke(self, name: str) -> bool:
        """Whether an opponent's budget is spent; says so once."""
        budget = self.budgets.get(name)
        if budget is None or not budget.reached:
            return False
        if name not in self._broke:
            self._broke.add(name)
            self.say(
                f"opponents: {name}: the budget is spent: {budget.spent.tokens} tokens; its games are self-play now"
            )
        return True

    def sleep(self) -> None:
        """When a step's games are over."""
        if self.engine is not None:
            self.engine.sleep()

    def count(
        self, records: Iterable[GameRecord], discarded: Iterable[GameRecord], spent: Iterable[Spent] = ()
    ) -> None:
        """Take in a step's games: ratings move by those that count, budgets by all."""
        self.count_spent(spent)
        records, discarded = list(records), list(discarded)
        self._count_roles(records, discarded)
        self._games = Counter(
            record.players[1 - record.trainable[0]] if len(record.trainable) == 1 else SELF_PLAY for record in records
        )
        if self.pool is not None:
            against = [record for record in records if record.opponent == POOL]
            self.pool.record(Outcome.of(record, record.players[1 - record.trainable[0]]) for record in against)
        for record in [*records, *discarded]:
            for turn in record.turns:
                if turn.player not in record.trainable and turn.tokens is not None:
                    self._tokens[record.players[turn.player]] += len(turn.tokens.response_ids)

    def count_spent(self, spent: Iterable[Spent]) -> None:
        """Take in what endpoints were paid for; it is on the disk from here on, whatever becomes of the run."""
        for total in spent:
            if total.player in self.budgets:
                self.budgets[total.player].count([total])
        if self.budgets:
            write_whole(self._ledger, json.dumps({name: one.state_dict() for name, one in self.budgets.items()}))

    def _count_roles(self, records: Sequence[GameRecord], discarded: Sequence[GameRecord]) -> None:
        """Where the players of a drawn game changed over, the learner's roles are still to be as often."""
        planned = {game.key: game.trainable for game in discarded}
        for record in records:
            before = planned.get(record.key.first_try(), record.trainable)
            if record.opponent != SELF_PLAY and before != record.trainable:
                name = record.players[1 - record.trainable[0]]
                self.matchmaker.changed_over(record.game, name, before[0])

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to join the pool; step 0 is before the first."""
        return self.pool is not None and self.pool.due(step)

    def join(self, step: int, save_snapshot: Callable[[str], Any]) -> None:
        """The policy after ``step`` joins the pool.

        Args:
            step: one that is due.
            save_snapshot: writes the policy's weights into a folder.
        """
        assert self.pool is not None
        name = snapshot_name(step)
        with self.folder.writing(name) as place:
            save_snapshot(str(place))
        for left in self.pool.add(name, step):
            self.folder.remove(left)

    def metrics(self, step: int) -> dict[str, float]:
        """The pool's; and of each model that was to play in this step its share of the games, and all its tokens."""
        metrics = {} if self.pool is None else self.pool.metrics(step)
        for name in [*self._playing, *self.models]:
            place = f"fsp/member/{name}" if name in self._playing else f"opponents/{name}"
            metrics[f"{place}/share"] = self._games[name] / max(sum(self._games.values()), 1)
            metrics[f"{place}/tokens"] = float(self._tokens[name])
        for name, budget in self.budgets.items():
            metrics[f"opponents/{name}/tokens"] = float(budget.spent.tokens)
            metrics[f"opponents/{name}/usd"] = budget.spent.cost or 0.0
        return metrics

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is counted, as JSON takes it."""
        pool = self._dormant if self.pool is None else self.pool.state_dict()
        budgets = {name: budget.state_dict() for name, budget in self.budgets.items()}
        counts = {"tokens": dict(self._tokens), "budgets": budgets}
        return {"pool": pool, "matchmaker": self.matchmaker.state_dict(), **counts}

    def save_into(self, checkpoint: Path) -> None:
        """Put the members' weights into a checkpoint that is being written."""
        missing = self.folder.save_into(checkpoint, self._with_files())
        if missing and self.pool is not None:
            self._leave_out(missing)

    def restore(
        self, state: Mapping[str, Any], checkpoint: Path | None, initial: Iterable[Any], base: str, step: int = 0
    ) -> None:
        """Go on as a checkpoint says; without one, or from one that had no pool, with the initial members.

        Args:
            state: the checkpoint's; {} if there is none.
            checkpoint: its folder.
            initial: of the pool's first members: "base", or {path, start, interval, size}.
            base: the path of the initial model.
            step: the checkpoint's.

        Raises:
            MemberGone: a member's files are gone, and that is not to be passed over.
            ValueError: there is no member at a path of ``initial``.
        """
        if matchmaker := state.get("matchmaker"):
            self.matchmaker.load_state_dict(matchmaker)
        self._tokens = Counter(state.get("tokens", {}))
        for spent in (state.get("budgets", {}), self._read_ledger()):
            for name in spent.keys() & self.budgets.keys():
                self.budgets[name].load_state_dict(spent[name])
        self.folder.clear()
        if self.pool is None:
            self._dormant = state.get("pool")
            self.folder.restore_from(checkpoint, self._with_files())
            return
        if state.get("pool"):
            self.pool.load_state_dict(state["pool"])
        if missing := self.folder.restore_from(checkpoint, self._with_files()):
            self._leave_out(missing)
        if not state.get("pool"):
            self._add_initial(initial, base, step)

    def _read_ledger(self) -> dict[str, Any]:
        """What was spent up to a kill, which a checkpoint does not know."""
        if not self.budgets or not self._ledger.is_file():
            return {}
        spent: dict[str, Any] = json.loads(self._ledger.read_text(encoding="utf-8"))
        return spent

    def _add_initial(self, entries: Iterable[Any], base: str, joined: int) -> None:
        assert self.pool is not None
        for entry in entries:
            if entry == BASE and self._adapters:
                self.pool.add(BASE, joined, base, permanent=True)
                continue
            chosen = {"path": base} if entry == BASE else dict(entry)
            found = members_of(local(str(chosen.pop("path"))), **chosen)
            for step, path, _ in found:
                own_name = path.name if len(found) == 1 else f"{path.parent.name}-{step}"
                taken = [*self.pool.names, *self.pool.gone, *self.fixed, POOL]
                name = BASE if entry == BASE else given_name(own_name, taken)
                with self.folder.writing(name) as place:
                    materialise(path, place)
                self.pool.add(name, joined, str(path), permanent=True)

    def _with_files(self) -> list[str]:
        """The members that are on the disk, or should be."""
        names = [] if self.pool is None else self.pool.names
        if self._dormant:
            names = [member["name"] for member in self._dormant["members"]]
        return [name for name in names if not (name == BASE and self._adapters)]

    def _there(self, name: str) -> bool:
        return name not in self._with_files() or not missing_files(self.folder.path(name))

    def _leave_out(self, names: Sequence[str]) -> None:
        assert self.pool is not None
        what = f"the pool's members {', '.join(names)}: their files are gone from {self.folder.folder}"
        if self._stop_on_missing:
            raise MemberGone(f"{what}; bring them back, or take fsp.on_missing=leave_out")
        self.say(f"{what}; left out")
        for name in names:
            self.pool.leave_out(name, "its files were gone")
