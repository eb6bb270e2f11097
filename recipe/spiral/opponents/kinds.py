"""Players that never learn, by kind and settings: the random one, and what extensions add. (Models need an engine.)"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..extensions import Kind, loaded
from ..players.player import Player, RandomPlayer, check_random_play

#: The argument of ``Kind.make`` that is no setting.
RUN_DIR = "run_dir"
#: The kinds that need no extension.
OURS = {"random": Kind(RandomPlayer, check_random_play)}


def kinds() -> dict[str, Kind]:
    """The kinds that a run has."""
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
        others = "" if len(known) > len(OURS) else "; others come with extensions"
        raise ValueError(f"{kind!r} is no kind of fixed player; known kinds: {', '.join(known)}{others}")
    given = {str(key): value for key, value in (settings or {}).items()}
    parameters = dict(inspect.signature(known[kind].make).parameters)
    takes_run_dir = parameters.pop(RUN_DIR, None) is not None
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if not takes_any and (unknown := sorted(given.keys() - {*parameters})):
        raise ValueError(
            f"{', '.join(unknown)}: no setting of the kind {kind!r}; it has {', '.join(parameters) or 'no settings'}"
        )
    player: Any = known[kind].make(**given, **({RUN_DIR: run_dir} if takes_run_dir else {}))
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
