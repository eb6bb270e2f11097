"""What is wrong with an entry of a config's list is said with the list's setting and the entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def entry_of(setting: str, entry: Any) -> Iterator[None]:
    """Name an entry in what the block raises: by its name, or what else tells it from the others.

    Raises:
        ValueError: of the block's own class. A message that begins with the setting names the entry itself.
    """
    try:
        yield
    except ValueError as error:
        if str(error).startswith(f"{setting}: "):
            raise
        given = [entry.get(key) for key in ("name", "id", "path", "kind")] if isinstance(entry, Mapping) else []
        raise type(error)(f"{setting}: {next(filter(None, given), entry)}: {error}") from error
