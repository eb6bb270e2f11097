"""The opponents that do not learn: the config's list ``opponents``, and the players that they are.

A kind is the random player, one that an extension adds, or a model, which needs an engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..extensions import Kind, loaded
from ..games import resolve
from ..players.player import Player, RandomPlayer, check_random_play
from ..players.records import SELF_PLAY
from ..players.seats import PAST_SELF

#: A model that the run serves itself, in an engine beside the policy's.
MODEL = "model"
#: The kinds of players that need no extension.
OURS = {"random": Kind(RandomPlayer, check_random_play)}
#: The keys that an entry of every kind may have.
OWN = ("kind", "name", "share", "games")
#: The argument of ``Kind.make`` that is no setting.
RUN_DIR = "run_dir"


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
        if not isinstance(entry, Mapping):
            raise ValueError("must have a kind and a share, such as {kind: random, share: 0.1}")
        kind = entry.get("kind")
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


def kinds() -> dict[str, Kind]:
    """The kinds of players that a run has."""
    known = dict(OURS)
    for extension in loaded():
        known.update(extension.opponents())
    return known


def make_player(
    kind: str,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    known: Mapping[str, Kind] = {},
    run_dir: str | None = None,
) -> Player:
    """A player, which serves any number of games at a time. Nothing is asked of a network.

    Args:
        kind: one of those that are known.
        settings: what its ``Kind.make`` takes.
        name: for records and metrics, in place of the player's own.
        known: the kinds that there are; none: the run's.
        run_dir: the folder for what a player notes there; None: it is to note nothing.

    Raises:
        ValueError: an unknown kind, something is wrong with the settings, or the key's variable is not set.
        ImportError: a package is not installed; the message names it.
    """
    known = known or kinds()
    if kind not in known:
        raise ValueError(f"{kind!r} is no kind of fixed player; known: {', '.join(known)}; others come with extensions")
    given = {str(key): value for key, value in (settings or {}).items()}
    signature = inspect.signature(known[kind].make)
    ours = {RUN_DIR: run_dir} if RUN_DIR in signature.parameters else {}
    try:
        signature.bind(**given, **ours)
    except TypeError as error:
        raise ValueError(f"kind={kind}: {error}") from error
    player: Any = known[kind].make(**given, **ours)
    if name is not None:
        player.name = name
    return player


@contextmanager
def entry_of(setting: str, entry: Any) -> Iterator[None]:
    """Name an entry in what the block raises, a ValueError of the block's own class: by its name, or what else tells it
    from the others. A message that begins with the setting names the entry itself."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(f"{setting}: "):
            raise
        given = [entry.get(key) for key in ("name", "id", "path", "kind")] if isinstance(entry, Mapping) else []
        raise type(error)(f"{setting}: {next(filter(None, given), entry)}: {error}") from error
