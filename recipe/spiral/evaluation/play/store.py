"""The games of an evaluation on the disk: one JSON line each, appended when it ends.

A kill can tear the last line only; it is dropped, and its game is played again. Whatever else cannot be read is damage,
and is never passed over in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from filelock import FileLock, Timeout

from ...play.records import GameRecord
from ...storage.disk import DiskFull, is_full
from .lines import encode, whole_lines, wrong_with
from .manifest import MANIFEST, Manifest, OtherEvaluation
from .matchups import GameId, Plan, PlannedGame

GAMES = "games.jsonl"
#: Lines that could not be read, where they were to be set aside.
SET_ASIDE = "games.set_aside.jsonl"
LOCK = "evaluation.lock"


class InUse(RuntimeError):
    """Another process is at work in the folder."""


class GameStore:
    """An evaluation's folder, open for going on with it. One process at a time.

    Args:
        folder: made if it is not there.
        manifest: what the evaluation is. The folder's own may know more policies, and learns of new ones.
        set_aside: put lines that cannot be read into ``games.set_aside.jsonl``; their games are played again.

    Raises:
        InUse: another process is at work there.
        OtherEvaluation: the folder's games were played with other settings.
        CorruptGames: a line cannot be read, and ``set_aside`` is off.
        ValueError: the folder's manifest cannot be read.
    """

    def __init__(self, folder: str | Path, manifest: Manifest, set_aside: bool = False) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        #: How many lines were set aside, and whether a torn last line was dropped.
        self.set_aside, self.torn = 0, False
        self._written = False
        self._done: set[GameId] = set()
        self._tries: dict[GameId, int] = {}
        with ExitStack() as stack:
            stack.callback(_lock(self.folder))
            self.manifest = self._agree(manifest)
            bad = self._read_in(set_aside)
            games = self.folder / GAMES
            self.torn = games.exists() and games.stat().st_size > self._end
            if bad:
                self.set_aside = self._put_aside()
            self._out: BinaryIO = stack.enter_context(games.open("ab", buffering=0))
            self._out.truncate(self._end)
            self._closing = stack.pop_all()

    def _agree(self, manifest: Manifest) -> Manifest:
        games = self.folder / GAMES
        try:
            earlier = Manifest.read(self.folder)
        except FileNotFoundError:
            if games.exists() and games.stat().st_size:
                raise ValueError(
                    f"{games} has no {MANIFEST} beside it, so that nobody knows what its games are: put it back, or "
                    "evaluate into another folder"
                ) from None
            merged = manifest
        else:
            try:
                merged = manifest.going_on_from(earlier)
            except OtherEvaluation as error:
                told = "\n".join(f"  {line}" for line in str(error).splitlines())
                raise OtherEvaluation(
                    f"{self.folder} holds an evaluation with other settings: go on with the same, or give another "
                    f"folder\n{told}"
                ) from None
            if merged == earlier:
                return merged
        merged.write(self.folder)
        return merged

    def _read_in(self, lenient: bool) -> bool:
        """Take in what is there; returns whether some lines cannot be read."""
        self._end, bad = 0, False
        for line in whole_lines(self.folder / GAMES, self.manifest):
            self._end += len(line.content)
            if line.record is not None:
                self._note(line.record)
            elif lenient:
                bad = True
            else:
                raise line.corrupt(self.folder / GAMES)
        return bad

    def _put_aside(self) -> int:
        """Move the lines that cannot be read out of the way; returns their number."""
        file, count = self.folder / GAMES, 0
        cleaned = file.with_name(f"{GAMES}.tmp")
        try:
            with (self.folder / SET_ASIDE).open("ab") as aside, cleaned.open("wb") as out:
                for line in whole_lines(file, self.manifest):
                    (aside if line.record is None else out).write(line.content)
                    count += line.record is None
                for each in (aside, out):  # the bad lines are safe before they are taken away
                    each.flush()
                    os.fsync(each.fileno())
                self._end = out.tell()
            cleaned.replace(file)
        finally:
            cleaned.unlink(missing_ok=True)
        return count

    def _note(self, record: GameRecord) -> None:
        identity = GameId.of(record)
        self._tries[identity] = max(self._tries.get(identity, 0), record.key.retry + 1)
        if record.discarded is None:
            self._done.add(identity)

    # -- what there is and what is missing -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many games are done; void ones are not."""
        return len(self._done)

    def __contains__(self, game: PlannedGame) -> bool:
        return game.id in self._done

    def done(self, games: Iterable[PlannedGame]) -> list[PlannedGame]:
        """Those that are done."""
        return [game for game in games if game in self]

    def missing(self, plan: Plan) -> list[PlannedGame]:
        """What of a plan is still to be played; a game that was void with the key of its next try.

        Raises:
            ValueError: the plan is not of this evaluation.
        """
        if (plan.seed, plan.chance) != (self.manifest.seed, self.manifest.chance):
            raise ValueError(
                f"the plan has seed={plan.seed} and chance={plan.chance!r}, the evaluation {self.manifest.seed} and "
                f"{self.manifest.chance!r}"
            )
        if strangers := sorted(set(plan.names) - set(self.manifest.policies)):
            raise ValueError(f"the plan has players that the evaluation's manifest lacks: {', '.join(strangers)}")
        return [
            replace(game, key=replace(game.key, retry=self._tries.get(game.id, 0))) for game in plan if game not in self
        ]

    def records(self, plan: Plan | None = None) -> Iterator[GameRecord]:
        """The games, void ones included, in the order in which they ended; all, or those of a plan."""
        wanted = None if plan is None else {game.id for game in plan}
        left = self._end
        for line in whole_lines(self.folder / GAMES, self.manifest):
            if left <= 0:  # appended since
                return
            left -= len(line.content)
            if line.record is None:
                raise line.corrupt(self.folder / GAMES)
            if wanted is None or GameId.of(line.record) in wanted:
                yield line.record

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(self, record: GameRecord) -> None:
        """Keep a game; once this returns, a kill of the process cannot take it away.

        Raises:
            ValueError: the game is none of this evaluation's, or is there already.
            DiskFull: there is no room; the file is as it was before.
        """
        if wrong := wrong_with(record, self.manifest):
            raise ValueError(f"game {record.key} is none of the evaluation in {self.folder}: {wrong}")
        identity = GameId.of(record)
        if identity in self._done or record.key.retry < self._tries.get(identity, 0):
            raise ValueError(f"game {record.key} ({', '.join(map(str, identity))}) is in {self.folder} already")
        content = encode(record)
        written = False
        try:
            count = self._out.write(content)
            written = count == len(content)
            if not written:
                raise DiskFull(f"no room for a game in {self.folder}: make some, and go on with the evaluation")
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"no room for a game in {self.folder}: make some, and go on with it") from error
            raise
        finally:
            if not written:
                self._out.truncate(self._end)
        self._end += len(content)
        self._written = True
        self._note(record)

    def close(self) -> None:
        """Have everything on the disk, and let others at the folder."""
        if self._written and not self._out.closed:
            os.fsync(self._out.fileno())
        self._closing.close()

    def __enter__(self) -> GameStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_games(folder: str | Path) -> Iterator[GameRecord]:
    """An evaluation's games so far, void ones included, also while it is going on.

    Raises:
        FileNotFoundError: there is no evaluation.
        CorruptGames: a line cannot be read.
    """
    manifest = Manifest.read(folder)
    for line in whole_lines(Path(folder) / GAMES, manifest):
        if line.record is None:
            raise line.corrupt(Path(folder) / GAMES)
        yield line.record


def _lock(folder: Path) -> Callable[[], None]:
    """Keep others out; the system lets go of the lock however this process ends. Returns how to let go of it."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InUse(
            f"{folder}: another process is at work there; wait for it, end it, or give another folder"
        ) from None
    return lock.release
