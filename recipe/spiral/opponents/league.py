"""Whom the policy plays besides itself: the pool of its past selves, and the opponents that do not learn.

This is the trainer's side. Before a step, the pool's members of this step are chosen and loaded. When games are
launched, each gets its seat. After them, results move the ratings. After the update, the policy may join the pool. All
of this is in a checkpoint: counts in its state, members' weights beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ..extensions import Given, first
from ..players.records import SELF_PLAY, GameRecord
from ..players.seats import BASE, PAST_SELF, Opponent, Seat
from ..players.seeds import GameKey
from ..storage.checkpoints import POOL
from ..storage.manifest import changed_member
from .engine_settings import Engine, has_adapter
from .fixed_opponents import MODEL, parse_opponents
from .matchmaking import Matchmaker
from .model_files import is_hub_id, local, missing_files, put
from .pool import Pool, given_name, snapshot_name
from .pool_folder import PoolFolder


class MemberGone(RuntimeError):
    """The files of a pool's member are gone, and ``fsp.on_missing`` is "stop"."""


class League:
    """The policy's opponents in training, by the config's ``fsp`` and ``opponents``.

    In the asynchronous modes games go on over several steps, and a model stays loaded, where it is, until the last of
    its games is over. So there is room for twice as many members as play in a step.

    Attributes:
        in_play: names the models that games under way are played against; in sync mode nobody, between steps.
        pool: past selves; None: there are none.
        folder: their weights.
        fixed: the other opponents of the training, by name.
        adapters: whether members are LoRA adapters; then ``BASE``, the model without one, needs no files.
        engine: serves members and opponents of kind "model"; None: nobody does.
        say: shows people a line.
    """

    def __init__(self, config: Any) -> None:
        fsp, run_dir = config.fsp, Path(config.run_dir)
        self.pool: Pool | None = None
        if fsp.enabled:
            self.pool = Pool(fsp.size, fsp.start_from, fsp.update_interval, fsp.keep, fsp.sample, int(config.seed))
        if fsp.members_per_step > fsp.size:
            raise ValueError(f"fsp.members_per_step={fsp.members_per_step}: must be <= fsp.size={fsp.size}")
        self.folder = PoolFolder(run_dir / POOL)
        opponents = parse_opponents(config.opponents)
        self.fixed = {opponent.name: opponent for opponent in opponents if opponent.share > 0}
        self.adapters = has_adapter(config)
        self.engine: Engine | None = None
        self.in_play: Callable[[], Collection[str]] = tuple
        self.say: Callable[[str], None] = print
        mode = OmegaConf.select(config, "trainer.v1.trainer_mode", default="sync")
        #: Whether games go on over several steps.
        self.overlapping = mode != "sync"
        #: Whether the opponents' engines give the devices back while the policy trains.
        self._sleeps = mode != "separate_async"
        #: Members that have left, and whose games are not all over.
        self._leaving: list[str] = []
        self._matchmaker = Matchmaker(
            fsp.ratio if fsp.enabled else 0.0, {name: opponent.share for name, opponent in self.fixed.items()}
        )
        self._members_per_step = int(fsp.members_per_step)
        self._step = 0
        self._stop_on_missing = fsp.on_missing == "stop"
        #: The state of a pool that the run had, and has not now.
        self._dormant: Mapping[str, Any] | None = None
        #: Of this step: the pool's members, each served model's slots,
        self._playing: list[str] = []
        self._slots: dict[str, tuple[int, ...]] = {}
        #: Of this step: games that each slot has, in all and by game id.
        self._seated: Counter[int | tuple[int, str]] = Counter()
        #: Of this step: servers that were given weights, and that had them still; None: no model plays.
        self._loads: tuple[int, int] | None = None
        #: When the files were written of members whose weights were found to be as their manifests say.
        self._unchanged: dict[str, dict[str, int]] = {}
        #: Response tokens that each opponent was asked for in the whole run.
        self._tokens: Counter[str] = Counter()
        #: Games of the last step, by opponent.
        self._games: Counter[str] = Counter()

    @cached_property
    def models(self) -> dict[str, Path]:
        """The fixed opponents that the run serves itself, and where they are."""
        return {name: local(str(model.settings["path"])) for name, model in self.fixed.items() if model.kind == MODEL}

    @property
    def served(self) -> int:
        """How many models are loaded at a time at most."""
        fixed = sum(opponent.kind == MODEL for opponent in self.fixed.values())
        return fixed + (0 if self.pool is None else self._room)

    @property
    def _room(self) -> int:
        """How many members are loaded at a time at most."""
        return self._members_per_step * (2 if self.overlapping else 1)

    # -- a step --------------------------------------------------------------------------------------------------------

    def begin_step(self, step: int) -> None:
        """Choose the pool's members of this step, and load them, or raise ``MemberGone``."""
        in_play = [name for name in self.in_play() if name not in self.models]
        self._let_go(in_play)
        self._playing = self._with_room(self._choose(step), in_play)
        members = dict.fromkeys([*in_play, *self._playing])
        models = {name: self.folder.path(name) for name in members} | self.models
        before = self._loads if step == self._step else None  # with games in flight, a start begins its step twice
        self._step, self._loads = step, None
        self._seated.clear()
        if self.engine is not None and models:
            self._slots = self.engine.load(models, {*in_play, *self.models} if self.overlapping else None)
            self._loads = before or (self.engine.loads, self.engine.kept)

    def _with_room(self, chosen: Sequence[str], in_play: Sequence[str]) -> list[str]:
        """Of the chosen members those that can be loaded beside the ones in play; if none can, these play on."""
        new = [name for name in chosen if name not in in_play][: max(self._room - len(in_play), 0)]
        return [name for name in chosen if name in in_play or name in new] or sorted(in_play)[-self._members_per_step :]

    def _let_go(self, in_play: Collection[str]) -> None:
        """Remove the files of members that have left, once nobody plays against them."""
        for name in [name for name in self._leaving if name not in in_play]:
            self.folder.remove(name)
            self._leaving.remove(name)

    def _choose(self, step: int) -> list[str]:
        if self.pool is None:
            return []
        while missing := [name for name in self.pool.choose(step, self._members_per_step) if not self._is_there(name)]:
            self._remove(missing)
        return self.pool.choose(step, self._members_per_step)

    def seat(self, games: Sequence[tuple[GameKey, str]]) -> list[Seat]:
        """Who plays each of a step's games, given by (key, game id)."""
        seats = []
        assigned = self._matchmaker.assign(games, self._playing, self._step)
        for (_, game), seat in zip(games, assigned, strict=True):
            name = seat.opponent.name
            if name in self.fixed and not self.fixed[name].plays(game):
                seat = Seat()
            seats.append(self.placed(seat, game))
        return seats

    def placed(self, seat: Seat, game: str = "") -> Seat:
        """With this step's slot and quota of its opponent; without ``game`` that of one that goes on from before."""
        name = seat.opponent.name
        return replace(seat, model=name in self._slots, slot=self._slot(name, game))

    def _slot(self, name: str, game: str) -> int | None:
        """Of an opponent's slots the one with the fewest games of this id, and of those the one with the fewest."""
        if not (slots := self._slots.get(name)):
            return None
        slot = min(slots, key=lambda slot: (self._seated[slot, game], self._seated[slot]))
        self._seated.update([slot, (slot, game)])
        return slot

    def sleep(self) -> None:
        """When a step's games are over: give the devices' memory back.

        Which members the next step has may still change with this step's results, and with who joins. Then one is
        loaded anew, or kept for nothing.
        """
        if self.engine is not None and self._sleeps:
            members = [] if self.pool is None else self.pool.choose(self._step + 1, self._members_per_step)
            self.engine.sleep({*members, *self.models}, set(self.in_play()) if self.overlapping else None)

    def count(self, records: Sequence[GameRecord], discarded: Sequence[GameRecord]) -> None:
        """Take in a step's games: ratings move by those that count, budgets and tokens by all."""
        played = [*records, *discarded]
        self._count_roles(records, discarded)
        self._games = Counter(Opponent.of(record).name for record in records)
        if self.pool is not None:
            self.pool.record((record for record in records if record.opponent == PAST_SELF), self._step)
        for record in played:
            for turn in record.turns:
                if turn.player not in record.trainable and turn.tokens is not None:
                    self._tokens[record.players[turn.player]] += len(turn.tokens.response_ids)

    def _count_roles(self, records: Sequence[GameRecord], discarded: Sequence[GameRecord]) -> None:
        """Where the players of a drawn game changed over, both roles of the policy are still to be as often."""
        planned = {game.key: game.trainable for game in discarded}
        for record in records:
            before = planned.get(record.key.first_try(), record.trainable)
            if record.opponent != SELF_PLAY and before != record.trainable:
                self._matchmaker.changed_over(record.game, Opponent.of(record).name, before[0])

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to join the pool; step 0 is before the first."""
        return self.pool is not None and self.pool.due(step)

    def join(self, step: int, save_snapshot: Callable[[str], Any]) -> None:
        """The policy after ``step``, which is due, joins the pool; ``save_snapshot`` writes its weights to a folder."""
        assert self.pool is not None
        name = snapshot_name(step)
        with self.folder.writing(name) as place:
            save_snapshot(str(place))
        self._leaving += self.pool.add(name, step)
        self._let_go(self.in_play())

    def metrics(self, step: int) -> dict[str, float]:
        """The pool's; each model's share of this step's games, and its tokens in the run; endpoints' costs.

        This step's members are ``fsp/member/<n>``, counted from the oldest, 0: under their own names a long run would
        have any number of metrics.
        """
        metrics = {} if self.pool is None else self.pool.metrics(step)
        if self._loads is not None:
            loads, kept = self._loads
            metrics |= {"opponents/loads": float(loads), "opponents/kept": float(kept)}
        places = {name: f"opponents/{name}" for name in self.models}
        members = [] if self.pool is None else list(self.pool.members.values())
        for number, member in enumerate(member for member in members if member.name in self._playing):
            place = places[member.name] = f"fsp/member/{number}"
            metrics |= {
                f"{place}/step": float(member.step),
                f"{place}/win": member.win_rate,
                f"{place}/rating": member.rating,
                f"{place}/games": float(member.games),
            }
        for name, place in places.items():
            metrics[f"{place}/share"] = self._games[name] / max(sum(self._games.values()), 1)
            metrics[f"{place}/tokens"] = float(self._tokens[name])
        return metrics

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is counted, as JSON takes it."""
        pool = self._dormant if self.pool is None else self.pool.state_dict()
        counts = {"tokens": dict(self._tokens)}
        leaving = {"leaving": list(self._leaving)} if self._leaving else {}
        return {"pool": pool, "matchmaker": self._matchmaker.state_dict(), **counts, **leaving}

    def save_into(self, checkpoint: Path) -> None:
        """Put the members' weights into a checkpoint that is being written."""
        self.folder.save_into(checkpoint, [*self._with_files(), *self._leaving])

    def restore(
        self, state: Mapping[str, Any], checkpoint: Path | None, initial: Iterable[Any], base: str, step: int = 0
    ) -> None:
        """Go on as a checkpoint says; without one, or from one that had no pool, with the initial members.

        Args:
            state: the checkpoint's; {} if there is none.
            initial: the pool's first members: "base", or {path, start, interval, size}.
            base: the path of the initial model.

        Raises:
            MemberGone: a member's files are gone, and ``fsp.on_missing`` is "stop".
            ValueError: there is no member at a path of ``initial``.
        """
        if matchmaker := state.get("matchmaker"):
            self._matchmaker.load_state_dict(matchmaker)
        self._tokens = Counter(state.get("tokens", {}))
        if self.pool is None:
            self._dormant = state.get("pool")
            self.folder.restore_from(checkpoint, self._with_files())
            return
        if state.get("pool"):
            self.pool.load_state_dict(state["pool"])
        self._leaving = list(state.get("leaving", ()))
        if missing := self.folder.restore_from(checkpoint, [*self._with_files(), *self._leaving]):
            self._remove(missing)
        if not state.get("pool"):
            self._add_initial(initial, base, step)

    def _add_initial(self, entries: Iterable[Any], base: str, joined: int) -> None:
        assert self.pool is not None
        for entry in entries:
            if entry == BASE and self.adapters:
                self.pool.add(BASE, joined, base, permanent=True)
                continue
            for member in [_model(base)] if entry == BASE else given(entry):
                taken = [*self.pool.names, *self.fixed, PAST_SELF]
                name = BASE if entry == BASE else given_name(member.name, taken)
                with self.folder.writing(name) as place:
                    member.fill(place)
                self.pool.add(name, joined, str(member.path), permanent=True)

    def _with_files(self) -> list[str]:
        """The members that are on the disk, or should be."""
        names = [] if self.pool is None else self.pool.names
        if self._dormant:
            names = [member["name"] for member in self._dormant["members"]]
        return [name for name in names if not (name == BASE and self.adapters)]

    def _is_there(self, name: str) -> bool:
        """Whether a member can be loaded. Its weights are read if they were not, or were written since."""
        folder = self.folder.path(name)
        if name not in self._with_files():
            return True
        if missing_files(folder):
            return False
        times = {file.name: file.lstat().st_mtime_ns for file in folder.iterdir()}
        if self._unchanged.get(name) != times:
            if changed_member(folder):
                return False
            self._unchanged[name] = times
        return True

    def _remove(self, names: Sequence[str]) -> None:
        """Let members go whose files are gone or damaged, or raise ``MemberGone``."""
        assert self.pool is not None
        what = f"the pool's members {', '.join(names)}: their files are gone or damaged in {self.folder.folder}"
        if needed := sorted({*names} & {*self.in_play(), *self._leaving}):
            raise MemberGone(f"{what}; games against {', '.join(needed)} are under way: bring the files back")
        if self._stop_on_missing:
            raise MemberGone(f"{what}; bring them back, or take fsp.on_missing=leave_out")
        self.say(f"{what}; left out")
        for name in names:
            del self.pool.members[name]


def given(entry: Mapping[str, Any]) -> Sequence[Given]:
    """The members that an entry ``{path: ...}`` of ``fsp.initial`` names, a model of the hub among them, which is
    fetched; a ``ValueError`` if nobody can say."""
    if is_hub_id(path := str(entry["path"])):
        return [_model(path)]
    found = first(lambda extension: extension.given(entry, "fsp.initial: path"))
    if found is None:
        raise ValueError(f"fsp.initial: {dict(entry)}: members from elsewhere come with extensions; take base, or none")
    members: Sequence[Given] = found
    return members


def _model(path: str) -> Given:
    folder = local(path).absolute()
    return Given(folder.name, folder, None, partial(put, folder))
