"""An evaluation's folder: its games, policy tables and answers to benchmarks, in one SQLite file.

A kill costs the games that were under way. The same evaluation goes on with what is missing; with other settings it is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ....players.records import GameRecord
from ...database import Database
from .matchups import GameId, Plan, PlannedGame, Randomness

FILE = "evaluation.sqlite"
#: ``settings`` holds the manifest, and how each policy answers benchmarks.
TABLES = ("settings", "games", "policy_tables", "answers")


class OtherEvaluation(ValueError):
    """A folder holds an evaluation with other settings; the message says what differs."""


@dataclass(frozen=True)
class Manifest:
    """What decides an evaluation's games and their results: those of other settings must not be counted with them.

    Everything is stored as JSON: no secrets.

    Attributes:
        seed: the evaluation's.
        randomness: which games have the same.
        policies: by name, what identifies each: its kind, the resolved path, a fingerprint of its weights.
        settings: what else must not change: rules, sampling, prompts; None for what nothing has used.
    """

    seed: int
    randomness: Randomness
    policies: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        # As it will be read: tuples are lists, and keys are texts.
        for field in ("policies", "settings"):
            object.__setattr__(self, field, json.loads(json.dumps(getattr(self, field), allow_nan=False)))

    def merged_with(self, earlier: Manifest, folder: Path) -> Manifest:
        """The manifest of the folder's evaluation that is continued: it has the policies of both.

        Raises:
            OtherEvaluation: something that both name is not the same.
        """
        before, merged = earlier._filled(self), self._filled(earlier)
        if changes := [f"\n  {line}" for line in differences(asdict(before), asdict(merged))]:
            length = before.settings.get("max_response_length")
            if length != merged.settings.get("max_response_length"):  # of null, today's policies make something else
                changes.append(f"\n  data.max_response_length={length} is the length there: it cuts longer responses")
            raise OtherEvaluation(
                f"{folder} holds an evaluation with other settings: use the same settings, or another folder"
                f"{''.join(changes)}"
            )
        return merged

    def _filled(self, other: Manifest) -> Manifest:
        """With the other's further policies, and its value of each setting that nothing has used here."""
        settings = {name: other.settings.get(name) if own is None else own for name, own in self.settings.items()}
        return replace(self, policies={**other.policies, **self.policies}, settings=settings)


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Line by line, what is not the same in two values as JSON has them."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            inner = f"{path}.{key}" if path else key
            if key not in now:
                yield f"{inner}: {_short(before[key])} there, not set now"
            elif key not in before:
                yield f"{inner}: not set there, {_short(now[key])} now"
            else:
                yield from differences(before[key], now[key], inner)
    elif before != now:
        yield f"{path}: {_short(before)} there, {_short(now)} now"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


class EvaluationStore(Database):
    """An evaluation's folder, open for continuing it. One process at a time.

    Args:
        folder: made if it is not there.
        manifest: what the evaluation is. The folder's own may know more policies, and learns of new ones.

    Raises:
        InUse: another process is at work there.
        OtherEvaluation: the folder's games were played with other settings.
        DamagedDatabase: the file was changed by something else, or is broken.
    """

    def __init__(self, folder: str | Path, manifest: Manifest) -> None:
        super().__init__(Path(folder) / FILE, TABLES)
        try:
            self._games = self.table("games")
            self.manifest = self._agree(Path(folder), manifest)
            self._finished: set[GameId] = set()
            self._tries: dict[GameId, int] = {}
            for (*identity, retry), record in self._games.items():
                self._note(GameId(*identity), retry, record["discarded"])
        except BaseException:
            self.close()
            raise

    def _agree(self, folder: Path, manifest: Manifest) -> Manifest:
        settings = self.table("settings")
        # one that was refused before it had anything does not keep the folder
        stored = settings.get("evaluation") if any(self.table(name).last() for name in TABLES[1:]) else None
        earlier = manifest if stored is None else Manifest(**stored)
        merged = manifest.merged_with(earlier, folder)
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
            ValueError: it is there already.
            DiskFull: there is no room; the file is as it was before.
        """
        identity, retry = GameId.of(record), record.key.retry
        self._games.add(*identity, retry, value=json.loads(record.to_json()))
        self._note(identity, retry, record.discarded)


def read_games(folder: str | Path) -> Iterator[GameRecord]:
    """An evaluation's games so far, void ones included, also while it is going on.

    Raises:
        FileNotFoundError: there is no evaluation.
        DamagedDatabase: the file is not whole.
    """
    with Database(Path(folder) / FILE, TABLES, read_only=True) as database:
        for _, record in database.table("games").items():
            yield GameRecord.from_dict(record)
