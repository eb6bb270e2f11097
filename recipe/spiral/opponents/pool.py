"""FSP's reference pool: which past policies there are, how the policy fares against each, whom to play next, and where
their weights lie. A full pool lets its oldest snapshot go. All is a function of the settings, the seed and the state.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..players.records import GameRecord
from ..players.seats import Opponent
from ..players.seeds import derive_seed
from ..storage.checkpoints import POOL
from ..storage.disk import discard, flush, link_or_copy, whole_folder
from ..storage.manifest import MANIFEST, write_manifest
from .model_files import missing_files

Sample = Literal["uniform", "hard"]
#: What a game still counts in a win rate when the member has played one more: about the last 100 games count.
WIN_RATE_DECAY = 0.99
_SCORES = {"win": 1.0, "draw": 0.5, "loss": 0.0}


def snapshot_name(step: int) -> str:
    """The name of the policy after ``step``, ``step_000040``, and before the first, ``step_000000``."""
    return f"step_{step:06d}"


def snapshot_step(name: str) -> int | None:
    """The step of a snapshot's name; None for a name of another kind."""
    return int(name.removeprefix("step_")) if re.fullmatch(r"step_\d+", name) else None


def given_name(folder_name: str, taken: Collection[str]) -> str:
    """A name for a member that comes from elsewhere: its folder's, so that it is nobody else's."""
    name = "given-" + re.sub(r"[^A-Za-z0-9._-]+", "_", folder_name)
    numbered = (f"{name}-{count}" for count in itertools.count(2))
    return next(unique for unique in itertools.chain([name], numbered) if unique not in taken)


@dataclass
class Member:
    """A past policy.

    Attributes:
        name: unique within the run, also among those that have left.
        step: of a snapshot, the step after which it was taken; of a member from elsewhere, that at which it joined.
        permanent: it comes from elsewhere, and never leaves to make room.
        points, games: the policy's against it, both decayed; a draw is half a point.
    """

    name: str
    step: int
    permanent: bool = False
    points: float = 0.0
    games: float = 0.0

    @property
    def win_rate(self) -> float:
        """The policy's share of the points, as if one more game had been drawn: it is never 0 or 1."""
        return (self.points + 0.5) / (self.games + 1.0)

    def record(self, score: float) -> None:
        """Take in a game with the policy's score: 1, 0.5 or 0."""
        self.points = WIN_RATE_DECAY * self.points + score
        self.games = WIN_RATE_DECAY * self.games + 1.0


@dataclass
class Pool:
    """The members by name, in the order in which they joined.

    Args:
        size: how many there are at most, permanent ones included.
        start_from: the step of the first snapshot; 0: the initial policy is one.
        update_interval: a snapshot every so many steps from there on; None: none at all, only members from elsewhere.
        sample: how members are drawn. "uniform": each as likely. "hard": with the weight (1 - w)^2, where w is the
            policy's win rate against the member (prioritized FSP).
        seed: the run's.
        newest: the step of the newest snapshot that ever joined; -1: none did.
    """

    size: int = 25
    start_from: int = 0
    update_interval: int | None = 5
    sample: Sample = "uniform"
    seed: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    newest: int = -1

    def due(self, step: int) -> bool:
        """Whether the policy after ``step`` is to be added: at ``start_from`` and every ``update_interval`` steps then.

        Step 0 is the policy before the first step. A step whose snapshot is, or was, a member is not due again.
        """
        if self.update_interval is None or step < self.start_from:
            return False
        return (step - self.start_from) % self.update_interval == 0 and step > self.newest

    def add(self, name: str, step: int, permanent: bool = False) -> None:
        """Add a member as the newest; the oldest that may leave make room."""
        self.members[name] = Member(name, step, permanent)
        if not permanent:
            self.newest = step
        free = [member.name for member in self.members.values() if not member.permanent and member.name != name]
        for oldest in free[: max(len(self.members) - self.size, 0)]:
            del self.members[oldest]

    def choose(self, step: int, count: int) -> list[str]:
        """Whom to play in a step: ``count`` different members, or all if there are no more, in the order drawn.

        The same for the same state, seed and step, however often it is asked.
        """
        draw = random.Random(derive_seed(self.seed, "pool", step))
        hard = self.sample == "hard"
        left = {member.name: (1 - member.win_rate) ** 2 if hard else 1.0 for member in self.members.values()}
        chosen: list[str] = []
        while left and len(chosen) < count:
            (name,) = draw.choices(list(left), list(left.values()))
            chosen.append(name)
            del left[name]
        return chosen

    def record(self, games: Iterable[GameRecord]) -> None:
        """Take in games, in the order of their keys; one against a member that has left moves nothing."""
        for game in sorted(games, key=lambda game: game.key):
            if (member := self.members.get(Opponent.of(game).name)) is not None:
                member.record(_SCORES[game.result(game.trainable[0])])

    def state_dict(self) -> dict[str, Any]:
        """Members and who has joined, as JSON takes it; settings are the config's."""
        return {"members": [asdict(member) for member in self.members.values()], "newest": self.newest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; where ``size`` is smaller now, several leave at the next ``add``."""
        self.members = {member["name"]: Member(**member) for member in state["members"]}
        self.newest = int(state["newest"])


class PoolFolder:
    """A run's ``pool/``: one folder a member (a Hugging Face folder, or with LoRA an adapter of PEFT's), whole or not
    there. Its files are never changed, and a manifest holds their digests.

    A checkpoint holds members by hard links, or copies on another disk: they take no room twice, and stay for as long
    as the pool or any checkpoint has them. The trainer and every worker must see the folder.

    Attributes:
        say: shows people a line.
    """

    def __init__(self, path: Path) -> None:
        self.folder = Path(path)
        self.say: Callable[[str], None] = print

    @property
    def names(self) -> list[str]:
        """Whose folders are there, sorted."""
        return _members(self.folder)

    def path(self, name: str) -> Path:
        """Where a member's files are, or will be."""
        return self.folder / name

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The block fills the folder that it is given; then it is the member's, on the disk, in place of an older one.

        Raises:
            ValueError: what the block wrote is no whole member; nothing has changed.
            Exception: whatever the block raises; nothing has changed.
        """
        with whole_folder(self.path(name)) as place:
            yield place
            if missing := missing_files(place):
                raise ValueError(f"member {name} of the pool is not whole: missing or cut short: {', '.join(missing)}")
            if not (place / MANIFEST).is_file():
                write_manifest(place)
            flush(place)

    def remove(self, name: str) -> None:
        """Take a member's files away, if there are any; a checkpoint's stay."""
        if self.path(name).exists():
            discard(self.path(name), self.say)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other members."""
        for name in self.names:
            if name not in names:
                self.remove(name)

    def save_into(self, checkpoint: Path, names: Iterable[str]) -> None:
        """Put members into a checkpoint's folder that is being written, as ``pool/<name>/``."""
        (checkpoint / POOL).mkdir(parents=True, exist_ok=True)
        for name in names:
            link_or_copy(self.path(name), checkpoint / POOL / name)

    def restore_from(self, checkpoint: Path | None) -> None:
        """Have exactly the members that a checkpoint holds (None: nobody): all others were added after it."""
        for left in self.folder.glob(".*"):  # by a kill
            discard(left, self.say)
        self.keep_only(())
        if checkpoint is None:
            return
        for name in _members(checkpoint / POOL):
            with self.writing(name) as place:
                link_or_copy(checkpoint / POOL / name, place)


def _members(folder: Path) -> list[str]:
    """The names of the members in a folder, sorted."""
    return sorted(sub.name for sub in folder.glob("[!.]*") if sub.is_dir())
