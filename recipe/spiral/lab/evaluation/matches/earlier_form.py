"""Reads evaluations of earlier versions, which had JSON lines with checksums in several files, into the database.

They had ``manifest.json``, ``games.jsonl``, ``readings/<policy>-<game>.json`` and ``benchmarks/<policy>.jsonl``.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ....players.records import GameRecord
from ....storage.database import Database
from .matchups import GameId

_CHECKSUM = b',"checksum":"'
#: The games of which policies had tables.
_TABULATED = ("KuhnPoker", "LiarsDice-1", "TicTacToe", "Nim")


def import_folder(folder: Path, database: Database) -> None:
    """Add what is in a folder's files to its database: all of it, or nothing. The files stay as they are.

    Raises:
        ValueError: a file cannot be read; the message names the line.
    """
    games, manifest = folder / "games.jsonl", folder / "manifest.json"
    if not manifest.exists():
        if games.exists():
            raise ValueError(f"{games} has no {manifest.name} beside it, which says what its games are: put it back")
        return
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        if data.pop("version") != 1:
            raise ValueError("it is of another version")
        data["randomness"] = data.pop("chance")
        data["settings"]["rules"] = _renamed(data["settings"]["rules"])
        policies = list(data["policies"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{manifest} cannot be read ({error}): put a whole one back, or use another folder") from error
    with database.transaction():
        for line in _lines(games):
            record = GameRecord.from_dict(line)
            database.table("games").add(*GameId.of(record), record.key.retry, value=record.to_dict())
        for policy in policies:
            for game in _TABULATED:
                for line in _lines(folder / "readings" / f"{_file_name(policy)}-{game}.json"):
                    how = {**line["how"], "rules": _renamed(line["how"]["rules"])}
                    database.table("policy_tables").add(policy, game, value={**line, "how": how})
            answers = _lines(folder / "benchmarks" / f"{_file_name(policy)}.jsonl")
            for head in islice(answers, 1):
                database.table("settings").add("answers", policy, value=head["settings"])
            for line in map(_renamed, answers):
                key = policy, line["benchmark"], line["question"], line["number"]
                database.table("answers").add(*key, value=line)
        database.table("settings").add("evaluation", value=data)


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """With today's name of ``truncated``."""
    return {("truncated" if name == "cut_off" else name): value for name, value in fields.items()}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """A file's objects; what follows the last newline was torn by a kill.

    Raises:
        ValueError: a line was changed.
    """
    if not file.exists():
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            content, mark, checksum = line.rpartition(_CHECKSUM)
            content += b"}"
            if not mark or checksum != b'%08x"}\n' % zlib.crc32(content):
                raise ValueError(f"{file}, line {number}: was changed: remove the line, and what it held is made again")
            yield json.loads(content)


def _file_name(policy: str) -> str:
    """What earlier versions made of a policy's name."""
    plain = re.sub(r"[^\w.-]+", "_", policy)
    return plain if plain == policy else f"{plain}-{hashlib.blake2b(policy.encode(), digest_size=4).hexdigest()}"
