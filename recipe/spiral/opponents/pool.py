"""FSP's reference pool: which past policies there are, how the policy fares against each, and whom to play next.

Fictitious self-play: some of the games are played against snapshots of the policy. This file knows names, steps and
results; weights lie in ``pool_folder``, and ``matchmaking`` says which game is played against whom. The way of a step::

    pool = Pool(size=25, start_from=0, update_interval=5, keep="fifo", sample="uniform", seed=run_seed)
    if pool.due(0): pool.add(snapshot_name(0), 0)             # a fresh start: the initial policy
    members = pool.choose(step, count)                        # before a step: whom to play in it
    pool.record(Outcome.of(game, name) for ...)               # after it: how the games went
    if pool.due(step): left = pool.add(snapshot_name(step), step)  # the policy after the step; these leave
    pool.leave_out(name, "its files are gone")
    pool.metrics(step); pool.state_dict(); pool.load_state_dict(state)

Everything is a function of the settings, the run's seed and the state; no generator is kept between calls.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from ..play.records import GameRecord
from ..play.seeds import GameKey, derive_seed

Keep = Literal["fifo", "spread", "best"]
Sample = Literal["uniform", "recent", "hard", "even"]
#: Elo: where the policy and members from elsewhere begin, and what one game moves at most. The K of a slow rating:
#: a step has dozens of games, and the policy itself changes.
START_RATING = 1000.0
ELO_K = 8.0
#: What a game still counts when the member has played one more (that of AlphaStar's league): about 100 games count.
WIN_RATE_DECAY = 0.99
#: A win rate begins as if so many games had been drawn; so one game decides nothing, and no weight is ever 0.
PRIOR_GAMES = 1.0
#: ``recent``: a member's weight, as a share of that of the next newer one.
RECENT = 0.9
#: Members that played within so many steps have metrics of their own.
LATELY = 10
AGES = ("old", "middle", "recent")
_SCORES = {"win": 1.0, "draw": 0.5, "loss": 0.0}
_OURS = re.compile(r"base|step_\d+")
#: Opponents that are no members, and what folders are called that are none.
_TAKEN = re.compile(r"self|random|perfect|policy|unfinished.*")


def snapshot_name(step: int) -> str:
    """The name of the policy after ``step``, ``step_000040``, and before the first, ``step_000000``."""
    return f"step_{step:06d}"


def given_name(folder_name: str, taken: Iterable[str]) -> str:
    """A name for a member that comes from elsewhere: its folder's, changed where it could mean another one.

    Args:
        folder_name: the last part of its path.
        taken: the names that there are.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", folder_name).strip("._-") or "member"
    if _OURS.fullmatch(name) or _TAKEN.fullmatch(name):
        name = f"given-{name}"
    names = set(taken)
    count, unique = 1, name
    while unique in names:
        count += 1
        unique = f"{name}-{count}"
    return unique


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
        played: the step of the last game against it; -1: there was none.
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


@dataclass(frozen=True)
class Outcome:
    """How a game against a member ended for the policy."""

    key: GameKey
    member: str
    result: Literal["win", "draw", "loss"]

    @classmethod
    def of(cls, record: GameRecord, member: str) -> Outcome:
        """Of a record with one learner."""
        (learner,) = record.trainable
        return cls(record.key, member, record.result(learner))


class Pool:
    """The members, oldest first: in the order in which they joined.

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

    def __init__(
        self,
        size: int = 25,
        start_from: int = 0,
        update_interval: int | None = 5,
        keep: Keep = "fifo",
        sample: Sample = "uniform",
        seed: int = 0,
    ) -> None:
        self.size = size
        self.start_from = start_from
        self.update_interval = update_interval
        self.keep = keep
        self.sample = sample
        self.seed = seed
        self.rating = START_RATING
        self._members: dict[str, Member] = {}
        self._gone: dict[str, str] = {}
        self._late = 0

    # -- who is in it --------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The members' names, oldest first."""
        return list(self._members)

    @property
    def members(self) -> list[Member]:
        return list(self._members.values())

    @property
    def gone(self) -> dict[str, str]:
        """Why those that were members are not any more, by name."""
        return dict(self._gone)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to be added: at ``start_from`` and every ``update_interval`` steps then.

        Step 0 is the policy before the first step: with ``start_from=0`` it is due, as ``step_000000``. A step
        whose snapshot is, or was, a member is not due again; so it may be asked for the step of a checkpoint, too.
        """
        if self.update_interval is None or step < self.start_from:
            return False
        name = snapshot_name(step)
        return (step - self.start_from) % self.update_interval == 0 and not self._known(name)

    def add(self, name: str, step: int, path: str | None = None, permanent: bool = False) -> list[str]:
        """Add a member as the newest; a snapshot has the policy's rating, one from elsewhere the first.

        Returns:
            Who leaves for it; their files may be removed from the pool's folder.

        Raises:
            ValueError: the name is not new, or only permanent members could leave.
        """
        if self._known(name):
            raise ValueError(f"the pool has, or had, a member {name!r}: names must be new")
        fixed = sum(member.permanent for member in self._members.values())
        if fixed >= self.size:
            raise ValueError(
                f"fsp.size={self.size}: must be more than the number of members that never leave, which is {fixed}"
            )
        rating = self.rating if path is None else START_RATING
        self._members[name] = Member(name, step, path, permanent, rating)
        left = []
        while len(self._members) > self.size and (member := self._leaves()) is not None:
            self._remove(member.name, f"made room after step {step}")
            left.append(member.name)
        return left

    def leave_out(self, name: str, reason: str) -> None:
        """Take a member out, permanent or not; the reason is kept.

        Raises:
            KeyError: there is no such member.
        """
        self._remove(name, reason)

    def _known(self, name: str) -> bool:
        return name in self._members or name in self._gone

    def _remove(self, name: str, reason: str) -> None:
        del self._members[name]
        self._gone[name] = reason

    def _leaves(self) -> Member | None:
        """Who makes room; None if nobody may."""
        *older, _ = self.members
        free = [member for member in older if not member.permanent]
        if self.keep == "spread":
            return self._crowded() or next(iter(free), None)
        if self.keep == "best":
            return min(free, key=lambda member: member.rating, default=None)
        return next(iter(free), None)

    def _crowded(self) -> Member | None:
        """The member between whose neighbours there are the fewest steps; of equals the oldest."""
        ordered = sorted(self.members, key=lambda member: member.step)  # stable: those of one step as they joined
        newest = self.members[-1]
        gaps = [
            (after.step - before.step, member)
            for before, member, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
            if not member.permanent and member is not newest
        ]
        return min(gaps, key=lambda gap: gap[0], default=(0, None))[1]

    # -- whom to play --------------------------------------------------------------------------------------------------

    def choose(self, step: int, count: int) -> list[str]:
        """Whom to play in a step: ``count`` different members, or all if there are no more, in the order drawn.

        The same for the same state, seed and step, however often it is asked.
        """
        draw = random.Random(derive_seed(self.seed, "pool", step))
        left = dict(zip(self._members, self._weights(), strict=True))
        chosen: list[str] = []
        while left and len(chosen) < count:
            (name,) = draw.choices(list(left), list(left.values()))
            chosen.append(name)
            del left[name]
        return chosen

    def _weights(self) -> list[float]:
        """Each member's weight in the draw."""
        members = self.members
        if self.sample == "recent":
            return [RECENT ** (len(members) - 1 - place) for place in range(len(members))]
        rates = [member.win_rate for member in members]
        if self.sample == "hard":
            return [(1 - rate) ** 2 for rate in rates]
        if self.sample == "even":
            return [rate * (1 - rate) for rate in rates]
        return [1.0] * len(members)

    # -- how games went ------------------------------------------------------------------------------------------------

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Take in games against members, in the order of their keys: counts, win rates and ratings, game by game.

        What the policy's rating gains, the member's loses. A game against a member that has left since is counted as
        late, and moves nothing.

        Raises:
            ValueError: a game is against somebody who never was a member.
        """
        for outcome in sorted(outcomes, key=lambda outcome: outcome.key):
            member = self._members.get(outcome.member)
            if member is not None:
                self._take_in(member, outcome)
            elif outcome.member in self._gone:
                self._late += 1
            else:
                raise ValueError(f"game {outcome.key} was played against {outcome.member!r}, who is no member")

    def _take_in(self, member: Member, outcome: Outcome) -> None:
        score = _SCORES[outcome.result]
        member.games += 1
        member.wins += outcome.result == "win"
        member.draws += outcome.result == "draw"
        member.losses += outcome.result == "loss"
        member.score = WIN_RATE_DECAY * member.score + score
        member.weight = WIN_RATE_DECAY * member.weight + 1.0
        member.played = max(member.played, outcome.key.step)
        expected = 1.0 / (1.0 + 10.0 ** ((member.rating - self.rating) / 400.0))
        gain = ELO_K * (score - expected)
        self.rating += gain
        member.rating -= gain

    # -- metrics -------------------------------------------------------------------------------------------------------

    def metrics(self, step: int) -> dict[str, float]:
        """After a step: the pool's size, ages in steps, ratings, and win rates of the policy.

        Win rates are those that ``sample`` goes by. Members that played in the last ``LATELY`` steps have metrics of
        their own, ``fsp/member/<name>/{win,rating,games}``; ``fsp/win/{recent,middle,old}`` is the mean over those of
        them in each third of the pool.
        """
        members = self.members
        metrics = {"fsp/size": float(len(members)), "fsp/rating": self.rating, "fsp/late": float(self._late)}
        if members:
            ages = [step - member.step for member in members]
            metrics |= {
                "fsp/age_mean": fmean(ages),
                "fsp/age_oldest": float(max(ages)),
                "fsp/age_newest": float(min(ages)),
            }
        thirds: dict[str, list[float]] = {age: [] for age in AGES}
        for place, member in enumerate(members):
            if member.games == 0 or member.played <= step - LATELY:
                continue
            # places in thirds from the newest on: a single member is recent
            thirds[AGES[2 - 3 * (len(members) - 1 - place) // len(members)]].append(member.win_rate)
            name = f"fsp/member/{member.name}"
            metrics |= {
                f"{name}/win": member.win_rate,
                f"{name}/rating": member.rating,
                f"{name}/games": float(member.games),
            }
        return metrics | {f"fsp/win/{age}": fmean(rates) for age, rates in thirds.items() if rates}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Members, ratings and who has left, as JSON takes it; settings are the config's."""
        return {
            "members": [asdict(member) for member in self._members.values()],
            "rating": self.rating,
            "gone": dict(self._gone),
            "late": self._late,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; where ``size`` is smaller now, several leave at the next ``add``."""
        self._members = {member["name"]: Member(**member) for member in state["members"]}
        self.rating = float(state["rating"])
        self._gone = dict(state["gone"])
        self._late = int(state["late"])
