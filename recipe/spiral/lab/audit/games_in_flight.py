"""Accounts for the games of an asynchronous run, whose steps train games that were launched in earlier ones.

Games are numbered in the order in which they are launched: in blocks of ``data.train_batch_size``. A key's step and
index are block and place. Each number is in the files once, or in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...players.records import GameRecord
from ...players.seeds import GameKey
from ..watching.game_metrics import oldest_version, staleness, versions
from .recompute import Settings


class InFlight:
    """The numbers of all games that were launched.

    Attributes:
        known: whether the files of all steps so far are there.
        seen: the step that trained or discarded each game.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.known = True
        self.seen: dict[int, int] = {}

    def number(self, key: GameKey) -> int:
        return (key.step - 1) * self._settings.batch_size + key.index

    def add(self, step: int, games: Mapping[int, GameRecord]) -> Iterator[str]:
        """What is wrong with the games together that a step trained or discarded: the last try of each, by number."""
        for number, record in games.items():
            if number in self.seen:
                yield f"game {record.key} is there again: step {self.seen[number]} has it"
            self.seen[number] = step
        sampled = [record for record in games.values() if record.discarded != "stale"]
        if self._settings.games_per_step is not None and len(sampled) != self._settings.games_per_step:
            yield f"{len(sampled)} games were sampled, should be {self._settings.games_per_step}"
        turns = sum(len(record.trainable_turns()) for record in sampled if record.discarded is None)
        if self._settings.games_per_step is None and turns < self._settings.batch_size:
            yield f"its games have {turns} turns, fewer than {self._settings.batch_size}"

    def checkpoint(self, step: int, named: Iterable[tuple[int, int]]) -> Iterator[str]:
        """What is wrong with the games that a checkpoint names as in flight, by block and place."""
        if not self.known:
            return
        done = {number for number, at in self.seen.items() if at <= step}
        in_flight = {self.number(GameKey("train", 0, block, index)) for block, index in named}
        if twice := sorted(in_flight & done):
            yield f"{len(twice)} games in flight were trained or discarded before, the first: {self._name(twice[0])}"
        lost, first = _missing(in_flight | done)
        if lost:
            yield f"{lost} games are lost: neither in flight nor in the files, the first: {self._name(first)}"

    def left(self) -> int:
        """How many games were launched before the last one that is in the files, and are not."""
        return _missing(self.seen)[0]

    def oldest(self) -> tuple[GameKey, int] | None:
        """The oldest game in flight, and a step by which it was launched, as a later one is in that step's file. None:
        no game was launched before the last one that is in the files, and is not."""
        missing, first = _missing(self.seen)
        if not missing or not self.known:
            return None
        return self._name(first), min(step for number, step in self.seen.items() if number > first)

    def stuck(self, last: int, resumed: int | None) -> Iterator[str]:
        """What is wrong with the oldest game in flight after step ``last``: where the learner waits for games that
        would become too old, none is left for longer. The run was started last after step ``resumed``, if it is known,
        and games in flight were played again."""
        most, oldest = self._settings.max_staleness, self.oldest()
        if oldest is None or resumed is None or most is None or not self._settings.waits:
            return
        game, launched = oldest
        if last > max(launched, resumed + 1) + most:
            yield (
                f"game {game} was launched by step {launched} and is in flight after step {last}, with "
                f"asynchronous.max_staleness={most} and on_stale=wait: it does not end"
            )

    def _name(self, number: int) -> GameKey:
        block, index = divmod(number, self._settings.batch_size)
        return GameKey("train", self._settings.seed, block + 1, index)


def _missing(numbers: Iterable[int]) -> tuple[int, int]:
    """How many numbers from 0 up to the largest of these, which all differ, are not among them, and the first such.
    They are not listed: a damaged key may have any number."""
    there = sorted(number for number in numbers if number >= 0)
    first = next((place for place, number in enumerate(there) if place != number), len(there))
    return (there[-1] + 1 - len(there) if there else 0), first


def wrong_age(record: GameRecord, step: int, most: int | None, in_groups: bool) -> str:
    """What is wrong with the age of a game that a step trained or dropped; "" if nothing is.

    Args:
        most: ``asynchronous.max_staleness``.
        in_groups: whether games that start from one state are dropped together.
    """
    written = versions(record)
    if any(not first <= last <= step - 1 for first, last in written):
        return f"weights {written} of a game that step {step} trains: the last version is {step - 1}"
    age = staleness(record, step)
    if record.discarded == "stale":
        fresh = oldest_version(record) is None or most is None or age <= most
        return f"was dropped as stale, and has staleness {age} of {most}" if fresh and not in_groups else ""
    if record.discarded is None and most is not None and age > most:
        return f"was trained with staleness {age}, more than {most}"
    return ""
