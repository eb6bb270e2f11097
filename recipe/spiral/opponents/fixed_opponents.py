"""The opponents that do not learn: the config's list ``opponents``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..games import resolve
from ..players.records import SELF_PLAY
from ..players.seats import PAST_SELF
from .kinds import entry_of, kinds

#: A model that the run serves itself, in an engine beside the policy's.
MODEL = "model"
#: The keys that an entry of every kind may have.
OWN = ("kind", "name", "share", "games")


@dataclass(frozen=True)
class FixedOpponent:
    """An opponent that does not learn.

    Attributes:
        kind: one of ``kinds``, or ``MODEL``.
        name: what records, baselines and metrics call it.
        share: of all training games (of the games that it plays).
        games: their ids; None: all.
        settings: what its kind needs besides.
    """

    kind: str
    name: str
    share: float
    games: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def plays(self, game: str) -> bool:
        return self.games is None or game in self.games

    @classmethod
    def parse(cls, entry: Any) -> FixedOpponent:
        """From a config entry, ``{kind, name, share, games, ...}``; a ``ValueError`` names what is wrong in it."""
        known = (*kinds(), MODEL)
        kind = entry.get("kind") if isinstance(entry, Mapping) else None
        if kind not in known:
            raise ValueError(f"kind={kind}: must be one of {', '.join(known)}; others come with extensions")
        share, games = entry.get("share", 0.0), entry.get("games")
        name = str(entry.get("name") or kind)
        if name in (SELF_PLAY, PAST_SELF, "policy") or "/" in name or not name.strip():
            raise ValueError(f"name={name!r}: is taken, or holds a slash; give another name")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"share={share}: must be a share from 0 to 1")
        if games is not None and (isinstance(games, str) or not isinstance(games, Iterable)):
            raise ValueError(f"games={games!r}: must be a list of games")
        ids = None if games is None else tuple(resolve(str(game)) for game in games)
        settings = {str(key): value for key, value in entry.items() if key not in OWN}
        return cls(kind, name, float(share), ids, settings)


def parse_opponents(entries: Any) -> list[FixedOpponent]:
    """The config's ``opponents``; a ``ValueError`` says what is wrong with them."""
    opponents = []
    for entry in entries:
        with entry_of("opponents", entry):
            opponents.append(FixedOpponent.parse(entry))
    names = [opponent.name for opponent in opponents]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"opponents: {', '.join(twice)} is there twice: give each its own name")
    if (total := sum(opponent.share for opponent in opponents)) > 1 + 1e-9:
        raise ValueError(f"opponents: their shares sum to {total:g}: at most 1; what is left is self-play")
    return opponents


def find_opponent(name: str, entries: Any) -> FixedOpponent:
    """The entry of that name. A kind that no entry names has its default settings (``validation.opponents``)."""
    named = (opponent for opponent in parse_opponents(entries) if opponent.name == name)
    return next(named, FixedOpponent(name, name, 0.0))
