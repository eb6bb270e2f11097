"""An evaluation's folder: its games, policy tables and answers to benchmarks, in one SQLite file.

A kill costs the games that were under way. The same evaluation goes on with what is missing; with other settings it is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from ...players.records import GameRecord
from ...storage.database import Database
from .earlier_form import import_folder
from .manifest import Manifest, OtherEvaluation
from .matchups import GameId, MatchUp, Plan, PlannedGame, game_key

FILE = "evaluation.sqlite"
#: ``settings`` holds the manifest, and how each policy answers benchmarks.
TABLES = ("settings", "games", "policy_tables", "answers")


class EvaluationStore:
    """An evaluation's folder, open for continuing it. One process at a time.

    Args:
        folder: made if it is not there.
        manifest: what the evaluation is. The folder's own may know more policies, and learns of new ones.

    Raises:
        InUse: another process is at work there.
        OtherEvaluation: the folder's games were played with other settings.
        DamagedDatabase: the file was changed by something else, or is broken.
        ValueError: the folder is of an earlier version, and a file in it cannot be read.
    """

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        self.database = Database(Path(folder) / FILE, TABLES)
        try:
            self._games = self.database.table("games")
            self.manifest = self._agree(Path(folder), manifest)
            self._finished: set[GameId] = set()
            self._tries: dict[GameId, int] = {}
            for (*identity, retry), record in self._games.items():
                self._note(GameId(*identity), retry, record["discarded"])
        except BaseException:
            self.database.close()
            raise

    def _agree(self, folder: Path, manifest: Manifest) -> Manifest:
        settings = self.database.table("settings")
        if settings.get("evaluation") is None:
            import_folder(folder, self.database)
        stored = settings.get("evaluation")
        earlier = manifest if stored is None else Manifest(**stored)
        try:
            merged = manifest.merged_with(earlier)
        except OtherEvaluation as error:
            lines = "\n".join(f"  {line}" for line in str(error).splitlines())
            raise OtherEvaluation(
                f"{folder} holds an evaluation with other settings: use the same settings, or another folder\n{lines}"
            ) from None
        if stored is None or merged != earlier:
            settings.put("evaluation", value=asdict(merged))
        return merged

    def _note(self, identity: GameId, retry: int, discarded: str | None) -> None:
        self._tries[identity] = max(self._tries.get(identity, 0), retry + 1)
        if discarded is None:
            self._finished.add(identity)

    def finished(self, games: Iterable[PlannedGame]) -> list[PlannedGame]:
        return [game for game in games if game.id in self._finished]

    def missing(self, plan: Plan) -> list[PlannedGame]:
        """The games of a plan that are still to be played; a game that was void with the key of its next try."""
        return [
            replace(game, key=replace(game.key, retry=self._tries.get(game.id, 0)))
            for game in plan
            if game.id not in self._finished
        ]

    def records(self, plan: Plan | None = None) -> Iterator[GameRecord]:
        """The games, void ones included, in the order in which they ended; all, or those of a plan."""
        wanted = None if plan is None else {game.id for game in plan}
        for (*identity, _), record in self._games.items():
            if wanted is None or GameId(*identity) in wanted:
                yield GameRecord.from_dict(record)

    def append(self, record: GameRecord) -> None:
        """Store a game; once this returns, a kill of the process cannot take it away.

        Raises:
            ValueError: the game is none of this evaluation's, or is there already.
            DiskFull: there is no room; the file is as it was before.
        """
        identity, retry = GameId.of(record), record.key.retry
        match_up = MatchUp(identity.policy, identity.opponent, identity.game)
        manifest = self.manifest
        key = game_key(manifest.seed, manifest.randomness, match_up, identity.role, identity.place, retry)
        if record.key != key or not set(record.players) <= set(manifest.policies):
            raise ValueError(f"game {record.key} ({', '.join(map(str, identity))}) is none of {self.database.file}")
        if identity in self._finished or retry < self._tries.get(identity, 0):
            raise ValueError(f"game {record.key} ({', '.join(map(str, identity))}) is in {self.database.file} already")
        self._games.add(*identity, retry, value=record.to_dict())
        self._note(identity, retry, record.discarded)

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> EvaluationStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_games(folder: str | Path) -> Iterator[GameRecord]:
    """An evaluation's games so far, void ones included, also while it is going on.

    Raises:
        FileNotFoundError: there is no evaluation.
        DamagedDatabase: the file is not whole.
    """
    with Database(Path(folder) / FILE, TABLES, read_only=True) as database:
        for _, record in database.table("games").items():
            yield GameRecord.from_dict(record)
