"""Rows of JSON in one SQLite file. One process writes, others may read meanwhile, and a kill loses no row.

SQLite takes care of torn writes, duplicates and a full disk. It does not notice a digit that a disk has changed inside
of a text: each row carries a CRC-32 for that.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from ..storage.disk import WITHOUT_LOCKS, InUse, check_locks

#: A key is a JSON list, a value is JSON.
_COLUMNS = "key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL"


class DiskFull(Exception):
    """Something could not be written; the message says what."""


class DamagedDatabase(ValueError):
    """The file, or a row in it, was changed by something else than this program; the message says how to mend it."""


class Database:
    """An SQLite file with tables of JSON rows.

    Args:
        file: it and its folder are made if they are not there, unless it is opened for reading.
        tables: their names.
        read_only: nothing is written, and a process that writes to the file is no obstacle.

    Raises:
        InUse: another process writes to the file.
        DamagedDatabase: the file is no such database, or not whole.
        DiskFull: it cannot be written.
        FileNotFoundError: there is no file to read.
    """

    def __init__(self, file: Path, tables: Sequence[str], read_only: bool = False) -> None:
        self.file = file.absolute()
        if read_only and not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file")
        with ExitStack() as stack:
            if not read_only:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(_locked(self.file).release)
            with self.errors():
                locks = "&nolock=1" if os.environ.get(WITHOUT_LOCKS) else ""
                target = f"{self.file.as_uri()}?mode={'ro' if read_only else 'rwc'}{locks}"
                self._connection = sqlite3.connect(target, uri=True, isolation_level=None)
                self._connection.text_factory = bytes  # a damaged text may be no UTF-8
                stack.enter_context(closing(self._connection))
                if not read_only:
                    # Without shared memory, as on some network disks, it stays with SQLite's slower journal.
                    with suppress(sqlite3.OperationalError):
                        self._connection.execute("PRAGMA journal_mode=WAL")
                    self._connection.execute("PRAGMA synchronous=NORMAL")
                self._check(tables, read_only)
            self._closing = stack.pop_all()

    def _check(self, tables: Sequence[str], read_only: bool) -> None:
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != b"ok":
            raise DamagedDatabase(self._damage(verdict.decode(errors="replace")))
        wanted = {(name.encode(), f"CREATE TABLE {name} ({_COLUMNS})".encode()) for name in tables}
        there = set(self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        if not there and read_only:
            raise FileNotFoundError(f"{self.file}: holds nothing yet")
        if not there:
            statements = "".join(f"{statement.decode()};" for _, statement in sorted(wanted))
            self._connection.executescript(f"BEGIN IMMEDIATE; {statements} COMMIT")
        elif there != wanted:
            names = ", ".join(sorted({name.decode(errors="replace") for name, _ in there ^ wanted}))
            raise DamagedDatabase(self._damage(f"the tables {names} are not those of this program"))

    def table(self, name: str) -> Table:
        return Table(self, name)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        with self.errors():
            return self._connection.execute(statement, parameters)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise SQLite's errors as this module's."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DamagedDatabase(self._damage(str(error))) from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
            if code == sqlite3.SQLITE_IOERR and "LOCK" in error.sqlite_errorname:
                check_locks(str(self.file), error)
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise DiskFull(f"{self.file} could not be written ({error}): make room on the disk") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise InUse(f"{self.file}: another process writes to it ({error}): wait for it, or end it") from error
            if code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISUSE):
                raise
            raise DamagedDatabase(self._damage(str(error))) from error

    def _damage(self, what: str) -> str:
        return (
            f"{self.file}: SQLite cannot use this file ({what}): put a whole copy back, or move the file away, and "
            "everything that was in it is made again"
        )

    def close(self) -> None:
        """Leave one plain file, which can also be read where nothing can be written, and let other processes at it."""
        with suppress(sqlite3.Error):  # somebody is reading: the next start tidies up
            self._connection.execute("PRAGMA journal_mode=DELETE")
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Table:
    """Rows by their keys, which are lists of texts and numbers; in the order in which they were added."""

    def __init__(self, database: Database, name: str) -> None:
        self._database, self._name = database, name

    def add(self, *key: str | int, value: Any) -> None:
        """Add a row; once this returns, a kill of the process cannot take it away. Raises ValueError: there is a row of
        that key; DiskFull: there is no room, and the table is as it was before."""
        try:
            self._write("INSERT", key, value)
        except sqlite3.IntegrityError as error:
            raise ValueError(f"{self._database.file}: {self._name} has a row {_encode(key)} already") from error

    def put(self, *key: str | int, value: Any) -> None:
        """Add a row, or replace the one of that key; see ``add``."""
        self._write("INSERT OR REPLACE", key, value)

    def _write(self, verb: str, key: Sequence[str | int], value: Any) -> None:
        row = _encode(key), _encode(value)
        checksum = _checksum(*(text.encode() for text in row))
        self._database.execute(f"{verb} INTO {self._name} VALUES (?, ?, ?)", (*row, checksum))

    def get(self, *key: str | int) -> Any | None:
        """A row's value; None: there is no such row. Raises DamagedDatabase: the row was changed."""
        return next((value for _, value in self._read("WHERE key = ?", _encode(key))), None)

    def items(self, *start: str | int) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Keys and values of the rows whose keys begin so. Raises DamagedDatabase: a row was changed."""
        if not start:
            return self._read("")
        prefix = f"{_encode(start)[:-1]},"
        return self._read("WHERE key >= ? AND key < ?", prefix, f"{prefix}\U0010ffff")

    def last(self) -> int:
        """The number of the last row; rows are numbered from 1 on as they are added. 0 without any."""
        (number,) = self._database.execute(f"SELECT max(rowid) FROM {self._name}").fetchone()
        return number or 0

    def rows(self, first: int, last: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Keys and values of the rows with these numbers. Raises DamagedDatabase: a row was changed."""
        return self._read("WHERE rowid BETWEEN ? AND ?", first, last)

    def stamp(self, first: int, last: int) -> str:
        """Another text whenever the rows with these numbers are others."""
        query = f"SELECT count(*), sum(checksum) FROM {self._name} WHERE rowid BETWEEN ? AND ?"
        return "-".join(map(str, self._database.execute(query, (first, last)).fetchone()))

    def _read(self, where: str, *parameters: str | int) -> Iterator[tuple[tuple[Any, ...], Any]]:
        query = f"SELECT rowid, key, value, checksum FROM {self._name} {where} ORDER BY rowid"
        with closing(self._database.execute(query, parameters)) as rows:
            while True:
                with self._database.errors():
                    row = rows.fetchone()
                if row is None:
                    return
                number, key, value, checksum = row
                if not (isinstance(key, bytes) and isinstance(value, bytes) and _checksum(key, value) == checksum):
                    file = self._database.file
                    raise DamagedDatabase(
                        f"{file}: row {number} of the table {self._name} was changed by something else than this "
                        f"program. Remove it, and it is made again: sqlite3 '{file}' "
                        f"'DELETE FROM {self._name} WHERE rowid = {number}'"
                    )
                yield tuple(json.loads(key)), json.loads(value)


def _encode(value: Any) -> str:
    """As JSON in ASCII: a text may hold half a surrogate pair, which SQLite would not take."""
    return json.dumps(value, separators=(",", ":"))


def _checksum(key: bytes, value: bytes) -> int:
    return zlib.crc32(key + b"\n" + value)


def _locked(file: Path) -> FileLock:
    """Keep other writers out; the system lets go of the lock however this process ends."""
    lock = FileLock(file.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InUse(f"{file}: another process writes to it: wait for it, end it, or take another folder") from None
    except OSError as error:
        check_locks(str(file), error)
    return lock
