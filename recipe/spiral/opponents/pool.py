"""FSP's reference pool: which past policies there are, how the policy fares against each, who makes room for a new one,
and whom to play next.

In fictitious self-play some of the games are played against snapshots of the policy. This file knows the members'
names, steps and results. Their weights lie in ``pool_folder``; ``matchmaking`` says which game is played against whom.
Everything is a function of the settings, the run's seed and the state; no generator is kept between calls.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from ..players.records import GameRecord, Result
from ..players.seats import Opponent
from ..players.seeds import derive_seed

Keep = Literal["fifo", "spread", "best"]
Sample = Literal["uniform", "recent", "hard", "even"]
#: ``recent``: a member's weight, as a share of that of the next newer one.
RECENT = 0.9
#: Thirds of the pool are judged by members that played within so many steps.
LATELY = 10
AGES = ("old", "middle", "recent")
#: Elo: where the policy and members from elsewhere begin, and what one game moves at most. The K of a slow rating:
#: a step has dozens of games, and the policy itself changes.
START_RATING = 1000.0
ELO_K = 8.0
#: What a game still counts when the member has played one more (that of AlphaStar's league): about 100 games count.
WIN_RATE_DECAY = 0.99
#: A win rate begins as if so many games had been drawn; so one game decides nothing, and no weight is ever 0.
PRIOR_GAMES = 1.0
_SCORES = {"win": 1.0, "draw": 0.5, "loss": 0.0}
_SNAPSHOT = re.compile(r"step_\d+")
#: Members of ours, opponents that are none, and what folders are called that are none.
_TAKEN = re.compile(r"base|step_\d+|self|random|perfect|policy|unfinished.*")


def snapshot_name(step: int) -> str:
    """The name of the policy after ``step``, ``step_000040``, and before the first, ``step_000000``."""
    return f"step_{step:06d}"


def snapshot_step(name: str) -> int | None:
    """The step of a snapshot's name; None for a name of another kind."""
    return int(name.removeprefix("step_")) if _SNAPSHOT.fullmatch(name) else None


def given_name(folder_name: str, taken: Collection[str]) -> str:
    """A name for a member that comes from elsewhere: its folder's, changed where it could mean another one."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", folder_name).strip("._-") or "member"
    if _TAKEN.fullmatch(name):
        name = f"given-{name}"
    numbered = (f"{name}-{count}" for count in itertools.count(2))
    return next(unique for unique in itertools.chain([name], numbered) if unique not in taken)


@dataclass
class Member:
    """A past policy.

    Attributes:
        name: unique within the run, also among those that have left.
        step: of a snapshot, the step after which it was taken; of a member from elsewhere, that at which it joined.
        path: where a member from elsewhere comes from; None: this run made it.
        permanent: it never leaves to make room.
        rating: Elo.
        games, wins, draws, losses: of the policy against it.
        score, weight: the policy's points and the number of games, both decayed, from which the win rate follows.
        played: the step that trained the last game against it; -1: there was none.
    """

    name: str
    step: int
    path: str | None = None
    permanent: bool = False
    rating: float = START_RATING
    games: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    score: float = 0.0
    weight: float = 0.0
    played: int = -1

    @property
    def win_rate(self) -> float:
        """The policy's share of the points (a draw is half a win) in its last games against it; 0.5 before any."""
        return (self.score + PRIOR_GAMES / 2) / (self.weight + PRIOR_GAMES)

    def record(self, result: Result, step: int, rating: float) -> float:
        """Take in a game with the policy's result and rating, which ``step`` trains; returns what that rating gains."""
        score = _SCORES[result]
        self.games += 1
        self.wins += result == "win"
        self.draws += result == "draw"
        self.losses += result == "loss"
        self.score = WIN_RATE_DECAY * self.score + score
        self.weight = WIN_RATE_DECAY * self.weight + 1.0
        self.played = max(self.played, step)
        expected = 1.0 / (1.0 + 10.0 ** ((self.rating - rating) / 400.0))
        gain = ELO_K * (score - expected)
        self.rating -= gain
        return gain


@dataclass
class Pool:
    """The members by name, oldest first: in the order in which they joined.

    Args:
        size: how many there are at most, permanent ones included.
        start_from: the step of the first snapshot; 0: the initial policy is one.
        update_interval: a snapshot every so many steps from there on; None: none at all, only members from elsewhere.
        keep: who leaves when there are too many. "fifo": the oldest. "spread": the one whose absence leaves the
            smallest gap, so that those who stay are spread over the whole run; never the oldest. "best": the one with
            the lowest rating. The newest never leaves at once, and permanent members never.
        sample: how members are drawn. "uniform"; "recent": the newer the likelier, geometrically; by the policy's win
            rate w against them, "hard": (1 - w)^2 (prioritized FSP), "even": w (1 - w).
        seed: the run's.
    """

    size: int = 25
    start_from: int = 0
    update_interval: int | None = 5
    keep: Keep = "fifo"
    sample: Sample = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        self.rating = START_RATING
        self.members: dict[str, Member] = {}
        #: The step of the newest snapshot that ever joined; -1: none did. As they join in the order of their steps,
        #: it says of each name whether it was a member, however many a run has had.
        self._newest = -1
        self._late = 0

    # -- who is in it --------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The members' names, oldest first."""
        return list(self.members)

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to be added: at ``start_from`` and every ``update_interval`` steps then.

        Step 0 is the policy before the first step: with ``start_from=0`` it is due, as ``step_000000``. A step
        whose snapshot is, or was, a member is not due again; so it may be asked for the step of a checkpoint, too.
        """
        if self.update_interval is None or step < self.start_from:
            return False
        return (step - self.start_from) % self.update_interval == 0 and step > self._newest

    def add(self, name: str, step: int, path: str | None = None, permanent: bool = False) -> list[str]:
        """Add a member as the newest; a snapshot has the policy's rating, one from elsewhere the first.

        Those that are returned leave for it. It is a ``ValueError`` if the name is not new.
        """
        if self._known(name):
            raise ValueError(f"the pool has, or had, a member {name!r}: names must be new")
        rating = self.rating if path is None else START_RATING
        self.members[name] = Member(name, step, path, permanent, rating)
        if path is None:
            self._newest = max(self._newest, step)
        left = []
        while len(self.members) > self.size and (member := self._leaves()) is not None:
            del self.members[member.name]
            left.append(member.name)
        return left

    def _known(self, name: str) -> bool:
        """Whether it is a member, or a snapshot that was one. Others leave only when nobody plays against them."""
        step = snapshot_step(name)
        return name in self.members or (step is not None and step <= self._newest)

    def _leaves(self) -> Member | None:
        """Who makes room; None if nobody may."""
        *older, _ = self.members.values()
        free = [member for member in older if not member.permanent]
        if self.keep == "best":
            return min(free, key=lambda member: member.rating, default=None)
        if self.keep == "spread":
            # the one between whose neighbours there are the fewest steps; of equals the oldest
            ordered = sorted(self.members.values(), key=lambda member: member.step)
            gaps = {
                member.name: after.step - before.step
                for before, member, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
                if member in free
            }
            if gaps:
                return self.members[min(gaps, key=gaps.__getitem__)]
        return next(iter(free), None)

    # -- whom to play --------------------------------------------------------------------------------------------------

    def choose(self, step: int, count: int) -> list[str]:
        """Whom to play in a step: ``count`` different members, or all if there are no more, in the order drawn.

        The same for the same state, seed and step, however often it is asked.
        """
        draw = random.Random(derive_seed(self.seed, "pool", step))
        left = dict(zip(self.members, self._weights(), strict=True))
        chosen: list[str] = []
        while left and len(chosen) < count:
            (name,) = draw.choices(list(left), list(left.values()))
            chosen.append(name)
            del left[name]
        return chosen

    def _weights(self) -> list[float]:
        """Each member's weight in the draw."""
        members = list(self.members.values())
        if self.sample == "recent":
            return [RECENT ** (len(members) - 1 - place) for place in range(len(members))]
        rates = [member.win_rate for member in members]
        if self.sample == "hard":
            return [(1 - rate) ** 2 for rate in rates]
        if self.sample == "even":
            return [rate * (1 - rate) for rate in rates]
        return [1.0] * len(members)

    # -- how games went ------------------------------------------------------------------------------------------------

    def record(self, games: Iterable[GameRecord], step: int | None = None) -> None:
        """Take in games against members, in the order of their keys: counts, win rates and ratings, game by game.

        What the policy's rating gains, the member's loses. A game against a member that has left since is counted as
        late, and moves nothing; one against somebody who never was a member is a ``ValueError``. ``step`` trains the
        games; None: it is their keys', which in the asynchronous modes only number them.
        """
        for game in sorted(games, key=lambda game: game.key):
            name = Opponent.of(game).name
            if name in self.members:
                played = game.key.step if step is None else step
                self.rating += self.members[name].record(game.result(game.trainable[0]), played, self.rating)
            elif self._known(name):
                self._late += 1
            else:
                raise ValueError(f"game {game.key} was played against {name!r}, who is no member")

    # -- metrics -------------------------------------------------------------------------------------------------------

    def metrics(self, step: int) -> dict[str, float]:
        """After a step: the pool's size, ages in steps, ratings, and win rates of the policy.

        Win rates are those that ``sample`` goes by. ``fsp/win/{recent,middle,old}`` is the mean over the members in
        each third of the pool that played in the last ``LATELY`` steps.
        """
        members = list(self.members.values())
        metrics = {"fsp/size": float(len(members)), "fsp/rating": self.rating, "fsp/late": float(self._late)}
        if ages := [float(step - member.step) for member in members]:
            metrics |= {"fsp/age_mean": fmean(ages), "fsp/age_oldest": max(ages), "fsp/age_newest": min(ages)}
        thirds: dict[str, list[float]] = {age: [] for age in AGES}
        for place, member in enumerate(reversed(members)):  # in thirds from the newest on: a single member is recent
            if member.games > 0 and member.played > step - LATELY:
                thirds[AGES[2 - 3 * place // len(members)]].append(member.win_rate)
        return metrics | {f"fsp/win/{age}": fmean(rates) for age, rates in thirds.items() if rates}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Members, ratings and who has joined, as JSON takes it; settings are the config's."""
        return {
            "members": [asdict(member) for member in self.members.values()],
            "rating": self.rating,
            "newest": self._newest,
            "late": self._late,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; where ``size`` is smaller now, several leave at the next ``add``."""
        self.members = {member["name"]: Member(**member) for member in state["members"]}
        self.rating = float(state["rating"])
        # a state of an earlier version has no "newest", but names of those that left, and the step of the others
        steps = [snapshot_step(name) for name in (*self.members, *state.get("gone", ()))]
        known = state.get("newest", state.get("forgotten", -1))
        self._newest = max([known, *(step for step in steps if step is not None)])
        self._late = int(state["late"])
