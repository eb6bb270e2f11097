"""The database: what was added stays, damage is told, and a full disk costs nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.lab.database import DamagedDatabase, Database, DiskFull
from recipe.spiral.storage.disk import WITHOUT_LOCKS, InUse

TABLES = ("games", "answers")


def opened(folder: Path, read_only: bool = False) -> Database:
    return Database(folder / "deep" / "it.sqlite", TABLES, read_only)


def filled(folder: Path, rows: int) -> list[tuple[tuple[str, int], dict[str, str]]]:
    content = [(("a", number), {"text": f"{number} " * 300}) for number in range(rows)]
    with opened(folder) as database:
        for key, value in content:
            database.table("games").add(*key, value=value)
    return content


def read(folder: Path) -> list[object]:
    with opened(folder, read_only=True) as database:
        return list(database.table("games").items())


def test_rows_by_key_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        table = database.table("games")
        table.add("b", 2, value=[1])
        table.add("b", 1, value={"x": None})
        table.add('b","1', 1, value="ü\ud800")
        table.add("c", value=0.1)
        assert table.get("b", 1) == {"x": None} and table.get("b") is None and table.get("b", "1") is None
        assert list(table.items("b")) == [(("b", 2), [1]), (("b", 1), {"x": None})]
        with pytest.raises(ValueError, match=r'games has a row \["b",2\] already'):
            table.add("b", 2, value=3)
        table.put("b", 1, value=5)
        assert list(database.table("answers").items()) == []
    with opened(tmp_path, read_only=True) as database:
        assert dict(database.table("games").items()) == {
            ("b", 2): [1],
            ("b", 1): 5,
            ('b","1', 1): "ü\ud800",
            ("c",): 0.1,
        }


def test_a_closed_database_is_one_plain_file(tmp_path: Path) -> None:
    """Without SQLite's files beside it, it can be copied, and read from a disk that cannot be written."""
    content = filled(tmp_path, 3)
    folder = tmp_path / "deep"
    assert {file.name for file in folder.iterdir()} <= {"it.sqlite", "it.lock"}
    with sqlite3.connect(f"{(folder / 'it.sqlite').as_uri()}?mode=ro&immutable=1", uri=True) as connection:
        assert connection.execute("SELECT count(*) FROM games").fetchone() == (len(content),)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(InUse, match=r"it\.sqlite: another process writes to it"):
        opened(tmp_path)
    with opened(tmp_path) as database, sqlite3.connect(database.file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        database.execute("PRAGMA busy_timeout=10")
        with pytest.raises(InUse, match="another process"):
            database.table("games").add("a", value=1)


def test_no_damage_passes_unseen(tmp_path: Path) -> None:
    """Bytes changed anywhere, or the file cut short: it is refused, or what it holds is as before."""
    before = filled(tmp_path, 12)
    file = tmp_path / "deep" / "it.sqlite"
    whole, refused = file.read_bytes(), 0
    rng = random.Random(0)
    for attempt in range(300):
        broken = bytearray(whole)
        if attempt % 10 == 0:
            broken = broken[: rng.randrange(1, len(whole))]
        else:  # the first page, with the schema, is damaged as often as the rest
            place = rng.randrange(4096 if attempt % 2 else len(whole))
            broken[place : place + rng.choice((1, 1, 8, 600))] = rng.randbytes(rng.choice((1, 8)))
            broken = broken[: len(whole)].ljust(len(whole), b"\0")
        file.write_bytes(broken)
        for read_only in (True, False):
            try:
                with opened(tmp_path, read_only) as database:
                    assert list(database.table("games").items()) == before
            except DamagedDatabase as error:
                refused += 1
                assert str(file) in str(error) and ("move the file away" in str(error) or "Remove it" in str(error))
    assert refused > 300


def test_a_changed_row_is_named_and_can_be_removed(tmp_path: Path) -> None:
    content = filled(tmp_path, 3)
    with sqlite3.connect(tmp_path / "deep" / "it.sqlite") as connection:
        connection.execute("UPDATE games SET value = replace(value, '1', '2') WHERE key = '[\"a\",1]'")
    with pytest.raises(DamagedDatabase, match="row 2 of the table games was changed") as told:
        read(tmp_path)
    command = re.search(r"sqlite3 '(.+)' '(DELETE .+)'$", str(told.value))
    assert command is not None
    with sqlite3.connect(command.group(1)) as connection:
        connection.execute(command.group(2))
    assert read(tmp_path) == [content[0], content[2]]


@pytest.mark.parametrize("content", [b"hello\n" * 1000, b"{}", b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "deep" / "it.sqlite"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(DamagedDatabase, match="move the file away"):
        opened(tmp_path)
    assert file.read_bytes() == content


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    Database(tmp_path / "deep" / "it.sqlite", ["others"]).close()
    with pytest.raises(DamagedDatabase, match="the tables answers, games, others are not those of this program"):
        opened(tmp_path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from recipe.spiral.lab.database import Database, DiskFull

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
database = Database(Path(sys.argv[1]), ["games", "answers"])
table = database.table("games")
for number in range(1000):
    if number == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        table.add("a", number, value={"text": "x" * 5000})
    except DiskFull as error:
        print(f"{number} {error}")
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
table.add("a", number, value="there is room again")
database.close()
"""


def test_a_full_disk_leaves_whole_rows_only(tmp_path: Path) -> None:
    """A limit of the file's size stands for it: SQLite cannot write on."""
    file = tmp_path / "deep" / "it.sqlite"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", FULL_DISK, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=60, check=True)
    number = int(done.stdout.split()[0])
    assert number >= 5 and "make room on the disk" in done.stdout
    rows = read(tmp_path)
    assert [key for key, _ in rows] == [("a", place) for place in range(number + 1)]
    assert rows[-1][1] == "there is room again"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_no_full_one(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InUse, match=r"it.sqlite: files cannot be locked there .*SPIRAL_WITHOUT_LOCKS=1"):
        opened(tmp_path)
    monkeypatch.setenv(WITHOUT_LOCKS, "1")
    assert len(filled(tmp_path, 3)) == len(read(tmp_path)) == 3


def test_sqlites_own_locks_are_told_from_a_full_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        for name, expected in (("SQLITE_IOERR_LOCK", InUse), ("SQLITE_IOERR_WRITE", DiskFull)):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname, error.sqlite_errorcode = name, getattr(sqlite3, name)
            with pytest.raises(expected), database.errors():
                raise error
