"""Whom the policy plays besides itself: the pool of its past selves, and the opponents that do not learn.

This is the trainer's side. Before a step, the pool's members of this step are chosen and loaded. When games are
launched, each gets its seat, drawn from its key alone: no count is kept, and a resumed run draws the same again. After
them, results move the win rates. After the update, the policy may join the pool. A checkpoint has the pool's state, and
the members' weights beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..players.records import SELF_PLAY, GameRecord
from ..players.seats import BASE, PAST_SELF, Opponent, Seat
from ..players.seeds import GameKey
from ..storage.checkpoints import POOL
from .engine_settings import has_adapter, members_loaded
from .fixed_opponents import MODEL, parse_opponents
from .model_files import local, missing_files, put
from .pool import Pool, PoolFolder, given_name, snapshot_name


def draw_seat(key: GameKey, shares: Mapping[str, float], members: Sequence[str], games_per_start: int = 1) -> Seat:
    """The seat of a game: its opponent is drawn by share, and the policy's role follows from the game's number.

    Games of one group (``GameKey.group``) are compared with each other, role by role, so that all have the opponent and
    the role of the group's first game.

    Args:
        shares: of all games: the pool's as ``PAST_SELF``, those of fixed opponents by name. What is left is self-play.
        members: the pool's members of this step, each as likely. While there are none, the pool's games are self-play.
        games_per_start: how many games a group has.
    """
    first = key.start()
    draw = random.Random(first.seed("seat"))
    left = max(0.0, 1.0 - sum(shares.values()))
    (kind,) = draw.choices([*shares, SELF_PLAY], [*shares.values(), left])
    if kind == SELF_PLAY or (kind == PAST_SELF and not members):
        return Seat()
    name = draw.choice(members) if kind == PAST_SELF else kind
    return Seat(Opponent(kind, name), (first.index // games_per_start % 2,))


class League:
    """The policy's opponents in training, by the config's ``fsp`` and ``opponents``.

    In the asynchronous modes games go on over several steps, and a model stays loaded, where it is, until the last of
    its games is over. So there is room for twice as many members as play in a step.

    Attributes:
        in_play: names the models that games under way are played against; in sync mode nobody, between steps.
        pool: past selves; None: there are none.
        folder: their weights.
        fixed: the other opponents of the training, by name.
        engine: of ``workers.engine.opponent_engines``: serves members and opponents of kind "model"; None: nobody does.
    """

    def __init__(self, config: Any) -> None:
        fsp = config.fsp
        self.pool: Pool | None = None
        if fsp.enabled:
            self.pool = Pool(fsp.size, fsp.start_from, fsp.update_interval, fsp.sample, int(config.seed))
        self.folder = PoolFolder(Path(config.run_dir) / POOL)
        self.fixed = {each.name: each for each in parse_opponents(config.opponents) if each.share > 0}
        self.engine: Any = None
        self.in_play: Callable[[], Collection[str]] = tuple
        #: Members are LoRA adapters; then ``BASE``, the model without one, needs no files.
        self._adapters = has_adapter(config)
        #: The pool's first members: ``BASE``, or the path of a model or an adapter; and the path of the initial model.
        self._initial, self._base = list(fsp.initial), str(config.actor_rollout_ref.model.path)
        self._members_per_step, self._room = int(fsp.members_per_step), members_loaded(config)
        self._games_per_start = int(config.data.games_per_start)
        self._shares = ({PAST_SELF: float(fsp.ratio)} if fsp.enabled else {}) | {
            name: opponent.share for name, opponent in self.fixed.items()
        }
        #: Of this step: the pool's members, and each served model's slots.
        self._playing: list[str] = []
        self._slots: dict[str, tuple[int, ...]] = {}

    @cached_property
    def models(self) -> dict[str, Path]:
        """The fixed opponents that the run serves itself, and where they are."""
        return {name: local(str(model.settings["path"])) for name, model in self.fixed.items() if model.kind == MODEL}

    # -- a step --------------------------------------------------------------------------------------------------------

    def begin_step(self, step: int) -> None:
        """Choose the pool's members of this step, and load them. RuntimeError: the files of one are not there."""
        in_play = self._members_in_play()
        self._playing = self._choose(step, in_play)
        members = {name: self.folder.path(name) for name in dict.fromkeys([*in_play, *self._playing])}
        for name, path in members.items():
            if self._has_files(name) and (missing := missing_files(path)):
                raise RuntimeError(f"the pool's member {name} is not whole: {path} lacks {', '.join(missing)}")
        if self.engine is not None and (members or self.models):
            self._slots = self.engine.load(members | self.models)

    def _members_in_play(self) -> list[str]:
        return [name for name in self.in_play() if name not in self.models]

    def _choose(self, step: int, in_play: Sequence[str]) -> list[str]:
        """The members of a step; of those drawn, such as can be loaded beside the ones in play. If none can, these
        play on."""
        drawn = [] if self.pool is None else self.pool.choose(step, self._members_per_step)
        new = [name for name in drawn if name not in in_play][: max(self._room - len(in_play), 0)]
        return [name for name in drawn if name in in_play or name in new] or sorted(in_play)[-self._members_per_step :]

    def seat(self, key: GameKey, game: str) -> Seat:
        """Who plays a game of this step, by its id."""
        seat = draw_seat(key, self._shares, self._playing, self._games_per_start)
        name = seat.opponent.name
        plays = name not in self.fixed or self.fixed[name].plays(game)
        return self.placed(key, seat if plays else Seat())

    def placed(self, key: GameKey, seat: Seat) -> Seat:
        """A game's seat with this step's slot of its opponent. Of several slots its games take turns."""
        name = seat.opponent.name
        slots = self._slots.get(name)
        number = key.index // self._games_per_start // 2  # both roles play in each
        slot = slots[number % len(slots)] if slots else None
        return replace(seat, model=name in self._slots, slot=slot)

    def count(self, records: Iterable[GameRecord]) -> None:
        """Take in a step's games that count: win rates move."""
        if self.pool is not None:
            self.pool.record(each for each in records if each.opponent == PAST_SELF)

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to join the pool; step 0 is before the first."""
        return self.pool is not None and self.pool.due(step)

    def join(self, step: int, save_snapshot: Callable[[str], Any]) -> None:
        """The policy after ``step``, which is due, joins the pool; ``save_snapshot`` writes its weights to a folder."""
        assert self.pool is not None
        name = snapshot_name(step)
        with self.folder.writing(name) as place:
            save_snapshot(str(place))
        self.pool.add(name, step)
        self.folder.keep_only({*self.pool.members, *self._members_in_play(), *self._playing})

    def metrics(self, step: int) -> dict[str, float]:
        """Of the pool, and of this step's members, which are ``fsp/member/<n>``, counted from the oldest, 0: under
        their own names a long run would have any number of metrics."""
        if self.pool is None:
            return {}
        metrics = {"fsp/size": float(len(self.pool.members))}
        members = (member for member in self.pool.members.values() if member.name in self._playing)
        for number, member in enumerate(members):
            metrics[f"fsp/member/{number}/age"] = float(step - member.step)
            metrics[f"fsp/member/{number}/win"] = member.win_rate
        return metrics

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is counted, as JSON takes it."""
        return {"pool": None if self.pool is None else self.pool.state_dict()}

    def save_into(self, checkpoint: Path) -> None:
        """Put the members' weights into a checkpoint that is being written, also of those that have left and play."""
        members = [] if self.pool is None else [*self.pool.members]
        in_play = self._members_in_play()
        self.folder.save_into(checkpoint, filter(self._has_files, dict.fromkeys([*members, *in_play])))

    def restore(self, state: Mapping[str, Any], checkpoint: Path | None, step: int = 0) -> None:
        """Go on as a checkpoint of a step says, with its ``state``; without one ({}), or from one that had no pool,
        with the initial members.

        Raises:
            RuntimeError: the checkpoint lacks a member.
            ValueError: there is no model or adapter at a path of ``fsp.initial``.
        """
        self.folder.restore_from(checkpoint)
        if self.pool is None:
            return
        if not state.get("pool"):
            for path in self._initial:
                self._add_initial(self.pool, path, step)
            return
        self.pool.load_state_dict(state["pool"])
        there = self.folder.names
        if gone := [name for name in self.pool.members if self._has_files(name) and name not in there]:
            raise RuntimeError(f"{checkpoint}: its pool lacks {', '.join(gone)}; take another checkpoint")

    def _add_initial(self, pool: Pool, path: str, joined: int) -> None:
        name = BASE if path == BASE else given_name(Path(path).name, [*pool.members, *self.fixed, PAST_SELF])
        if self._has_files(name):
            with self.folder.writing(name) as place:
                put(local(self._base if path == BASE else path).absolute(), place)
        pool.add(name, joined, permanent=True)

    def _has_files(self, name: str) -> bool:
        return not (name == BASE and self._adapters)
