"""Whether a step has exactly its games: those that the seed drew, each once, and again where it had to be played again.

In the asynchronous modes a step trains games that were launched in earlier ones. They are numbered in the order in
which they are launched, in blocks of a batch's size: a key's step and index are block and place. Each number is in the
files once, or in flight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from ...players.records import MAX_VOIDS, SELF_PLAY, GameRecord
from ...players.seats import Seat
from ...players.seeds import GameKey
from ...rollouts.schedule import training_row
from .recompute import MOST, Settings


class Accounts:
    """The games of a run's steps, which are looked at in their order.

    Attributes:
        launched: how many games come before the present step's; None: not known, as files are missing.
        whole: whether the files of all steps so far are there.
        seen: of an asynchronous run, the step that trained or discarded each game.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.launched: int | None = 0
        self.whole = True
        self.seen: dict[int, int] = {}

    def gap(self) -> None:
        """The files before the next step are missing."""
        self.launched, self.whole = None, False

    def of_step(self, step: int, records: Sequence[GameRecord]) -> Iterator[str]:
        """What is wrong with the games of a step together."""
        settings = self.settings
        for record, following in pairwise(records):
            if record.key == following.key:
                yield f"{name(following)} is there more than once"
            elif record.key > following.key:
                yield f"{name(following)} stands behind {record.key}: not in their order"
        tries: dict[int, dict[int, GameRecord]] = defaultdict(dict)
        for record in records:
            key = record.key
            block = step if settings.synchronous else max(key.step, 1)
            place = key.index if settings.synchronous else self._number(key.step, key.index)
            if key.first_try() != GameKey("train", settings.seed, block, key.index) or key.index > MOST:
                yield f"{name(record)} is none of this run's and step's"
            elif not settings.branches or all(earlier.discarded for earlier in tries[place].values()):
                tries[place][key.retry] = record  # what follows a game that counts is a branch of it
        games = {place: [record for _, record in sorted(tries[place].items())] for place in sorted(tries)}
        by_turns = settings.synchronous and settings.in_turns
        expected = max(tries, default=0) + 1 if by_turns else settings.batch_size
        if not by_turns:
            self.launched = (step - 1) * expected if settings.synchronous else 0
        if not settings.synchronous:
            yield from self._sampled(step, games)
        elif missing := sorted({*range(expected)} - {*tries}):
            yield f"no game of index {missing[0]} ({len(missing)} missing)"
        if by_turns:
            yield from self._surplus(records)
        for place, attempts in games.items():
            yield from (f"{name(attempts[-1])} {what}" for what in self._wrong_tries(attempts))
            if self.launched is not None and settings.shares:
                yield from self._wrong_draw(self.launched + place, attempts[-1])
        if self.launched is not None:
            self.launched += expected

    def of_checkpoint(self, named: Iterable[tuple[int, int]]) -> Iterator[str]:
        """What is wrong with the games that a checkpoint after the present step names as in flight, by block and
        place."""
        if not self.whole:
            return
        in_flight = {self._number(block, index) for block, index in named}
        if twice := sorted(in_flight & self.seen.keys()):
            yield f"{len(twice)} games in flight were trained or discarded before, the first: {self._name(twice[0])}"
        lost, first = _missing(in_flight | self.seen.keys())
        if lost:
            yield f"{lost} games are lost: neither in flight nor in the files, the first: {self._name(first)}"

    def in_flight(self) -> int:
        """How many games were launched before the last one that is in the files, and are not."""
        return _missing(self.seen)[0]

    def _sampled(self, step: int, games: Mapping[int, Sequence[GameRecord]]) -> Iterator[str]:
        """What is wrong with the games that a step of an asynchronous run trained or discarded: the tries of each, by
        number."""
        for number, (*_, last) in games.items():
            if number in self.seen:
                yield f"game {last.key} is there again: step {self.seen[number]} has it"
            self.seen[number] = step
        sampled = [last for *_, last in games.values() if last.discarded != "stale"]
        wanted = self.settings.batch_size
        if not self.settings.in_turns and len(sampled) != wanted:
            yield f"{len(sampled)} games were sampled, should be {wanted}"
        turns = sum(len(record.trainable_turns()) for record in sampled if record.discarded is None)
        if self.settings.in_turns and turns < wanted:
            yield f"its games have {turns} turns, fewer than {wanted}"

    def _surplus(self, games: Sequence[GameRecord]) -> Iterator[str]:
        """In the order of their keys, the fewest games with enough turns are trained; the others are surplus."""
        wanted, turns = self.settings.batch_size, 0
        for record in games:
            if record.discarded not in (None, "surplus"):
                continue
            enough = turns >= wanted
            if enough != (record.discarded == "surplus"):
                done = "was trained" if enough else "is surplus"
                yield f"{name(record)} {done}, behind {turns} turns of {wanted}"
            turns += len(record.trainable_turns())
        if turns < wanted:
            yield f"its games have {turns} turns, fewer than {wanted}"

    def _wrong_tries(self, attempts: Sequence[GameRecord]) -> Iterator[str]:
        """What is wrong with the tries of one game: it is discarded and played again until it counts."""
        settings, last, earlier = self.settings, attempts[-1], attempts[:-1]
        drawn = [record for record in earlier if record.discarded == "draw"]
        if last.key.index < 0 or (not settings.in_turns and last.key.index >= settings.batch_size):
            yield f"has no place in a step of {settings.batch_size} games"
        if [record.key.retry for record in attempts] != list(range(len(attempts))):
            yield "was played in place of a game that is not there"
        dropped = "stale" if not settings.synchronous else "surplus" if settings.in_turns else None
        # a game against an endpoint that is out of time or money is given up at once
        voids = sum(record.discarded == "void" for record in attempts)
        given_up = last.discarded == "void" and (voids > MAX_VOIDS or last.opponent != SELF_PLAY)
        if last.discarded not in (None, dropped) and not given_up:
            yield f"was discarded ({last.discarded}) and not played again"
        if any(record.discarded not in ("void", "draw") for record in earlier):
            yield "was played in place of a game that counts"
        if len(drawn) > settings.draw_retries or any(record.result(0) != "draw" for record in drawn):
            yield f"was played in place of games that were no draws, or of more than {settings.draw_retries}"
        if last.discarded is None and last.result(0) == "draw" and len(drawn) < settings.draw_retries:
            yield f"is a draw after {len(drawn)} draws, and should have been played again"

    def _wrong_draw(self, number: int, record: GameRecord) -> Iterator[str]:
        """Whether the seed drew another game, or other players to train, for the game of this number in the run."""
        settings, same = self.settings, self.settings.games_per_start
        starts = None if settings.synchronous and settings.in_turns else settings.batch_size // same
        row = training_row(settings.shares, settings.seed, starts, number // same, same)
        # The seed alone does not decide against whom the policy plays: that depends on the run's pool.
        trainable = Seat.from_row(row).trainable if record.opponent == SELF_PLAY else record.trainable[:1]
        group = row["key"]["group"]
        if settings.branches and group is None:  # a game and its branches are tries of one start
            group = record.key.index
        expected, played = (row["data_source"], group, trainable), (record.game, record.key.group, record.trainable)
        if played != expected:
            yield f"{name(record)} is not what the seed drew: (game, group, trainable) {played} should be {expected}"

    def _number(self, block: int, place: int) -> int:
        return (block - 1) * self.settings.batch_size + place

    def _name(self, number: int) -> GameKey:
        block, index = divmod(number, self.settings.batch_size)
        return GameKey("train", self.settings.seed, block + 1, index)


def name(record: GameRecord) -> str:
    return f"game {record.key} of {record.game}"


def _missing(numbers: Iterable[int]) -> tuple[int, int]:
    """How many numbers from 0 up to the largest of these, which all differ, are not among them, and the first such.
    They are not listed: a damaged key may have any number."""
    there = sorted(number for number in numbers if number >= 0)
    first = next((place for place, number in enumerate(there) if place != number), len(there))
    return (there[-1] + 1 - len(there) if there else 0), first
