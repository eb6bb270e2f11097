"""A training run, simulated: games, engines, the processes between them, and the learner, in one of verl's modes.

What the modes do is what this recipe does in them. sync: a step waits for all of its games. The others launch
``ahead`` batches more, so that games are played while others are trained; a step takes the oldest games that are over,
the first one exactly the games that were launched first.
colocate_async breaks the games off while the learner has the devices; in separate_async engine and learner have devices
of their own, and games are broken off only for new weights.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from .clock import Clock, Process, Servers
from .engine import Engine, Request
from .figures import Costs
from .games import Draw, Game, tokens

SYNC, COLOCATE, SEPARATE = MODES = ("sync", "colocate_async", "separate_async")
WAIT, DROP = "wait", "drop"


@dataclass(frozen=True)
class Setup:
    """A run's settings.

    Attributes:
        mode: of ``MODES``.
        engines: replicas, each on one device.
        learner: devices that train; but for separate_async the same ones.
        batch: games of a step.
        steps: how many are simulated; the first ``skip`` are not measured.
        ahead: batches that are played ahead (``num_warmup_batches``).
        max_staleness, on_stale: as in the config's ``asynchronous``.
        workers: rollout workers.
        storages: TransferQueue's processes that hold data, one for each machine.
    """

    mode: str
    engines: int
    learner: int
    batch: int
    steps: int = 12
    skip: int = 2
    ahead: float = 1.0
    max_staleness: int | None = 4
    on_stale: str = WAIT
    workers: int = 8
    storages: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode={self.mode!r}: must be one of {', '.join(MODES)}")
        if self.on_stale not in (WAIT, DROP):
            raise ValueError(f"on_stale={self.on_stale!r}: must be wait or drop")
        if not 0 <= self.skip < self.steps:
            raise ValueError(f"skip={self.skip}: must be from 0 to steps - 1, {self.steps - 1}")
        if self.on_stale == WAIT and self.max_staleness is not None and self.max_staleness < self.ahead_batches:
            raise ValueError(f"max_staleness={self.max_staleness}: must be at least ahead, {self.ahead_batches:g}")

    @property
    def ahead_batches(self) -> float:
        return 0.0 if self.mode == SYNC else self.ahead

    @property
    def devices(self) -> int:
        return self.engines + (self.learner if self.mode == SEPARATE else 0)


@dataclass(frozen=True)
class Result:
    """What came of a run, over the measured steps.

    Attributes:
        seconds: of a step, the mean.
        play, learn, update: seconds of a step in which the learner waits for games, trains, and sends weights; the rest
            is the driver's.
        games, turns, response_tokens: trained per second.
        engine_idle, learner_idle: shares of the time. The engines' is the mean over replicas of the time in which none
            of its sequences runs; the learner's, of the time in which it does not train.
        running: mean sequences that run in a replica that works.
        busy: shares of the time in which the processes of the others work, by part.
        staleness: shares of the trained games, by staleness in versions.
        longest_wait: the largest number of seconds in which the learner waited in one step.
        launched, trained, dropped, in_flight: games of the whole run.
    """

    seconds: float
    play: float
    learn: float
    update: float
    games: float
    turns: float
    response_tokens: float
    engine_idle: float
    learner_idle: float
    running: float
    busy: dict[str, float]
    staleness: dict[int, float]
    longest_wait: float
    launched: int
    trained: int
    dropped: int
    in_flight: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(order=True)
class Played:
    """A game that is over, in the order in which games are trained.

    Attributes:
        launched: the step in which it was.
        index: of all launches.
        oldest: the oldest version that wrote one of its turns.
    """

    launched: int
    index: int
    oldest: int = field(compare=False)
    game: Game = field(compare=False)


class Run:
    """One run.

    Args:
        setup: its settings.
        costs: what its parts cost.
        draw: gives the length of each game, from a generator that depends on the seed and on the game's number alone.
    """

    def __init__(self, setup: Setup, costs: Costs, draw: Draw) -> None:
        self.setup, self.costs, self._draw = setup, costs, draw
        self.clock = Clock()
        self.engines = [Engine(self.clock, costs.engine) for _ in range(setup.engines)]
        # of each rollout worker: the number of its requests at each replica, with a lot that puts equals in order
        self._lots = random.Random(setup.seed)
        self._asked = [[(0, self._lots.random()) for _ in self.engines] for _ in range(setup.workers)]
        self._by_number = [[(*asked, replica) for replica, asked in enumerate(of)] for of in self._asked]
        for heap in self._by_number:
            heapq.heapify(heap)
        self.servers = {
            "rollout workers": Servers(self.clock, setup.workers),
            "TransferQueue": Servers(self.clock, 1),
            "driver": Servers(self.clock, 1),
        }
        self.launched = self.dropped = self.trained = 0
        self._playing: Counter[int] = Counter()  # games by the step of their launch
        self._over: list[Played] = []
        self._over_turns = 0
        self._first = setup.batch  # games of the first batch that are not over
        # sums over the measured steps
        self._waited: list[float] = []
        self._learned = self._updated = 0.0
        self._ages: Counter[int] = Counter()
        self._turns = self._responses = 0

    def simulate(self) -> Result:
        """From the first step to the end of the last."""
        ended = self.clock.start(self._train())
        self.clock.run(ended)
        result: Result = ended.value
        return result

    # -- games ---------------------------------------------------------------------------------------------------------

    def _launch(self, number: int, step: int) -> None:
        for _ in range(number):
            self._playing[step] += 1
            self.clock.start(self._play(step, self.launched))
            self.launched += 1

    def _play(self, step: int, index: int) -> Process:
        """A game: turn after turn, each through a rollout worker and an engine; then its rows go to TransferQueue."""
        game, oldest = self._draw(random.Random(f"{self.setup.seed} {index}")), None
        worker = index % self.setup.workers
        for prompt, response in game:
            yield self.servers["rollout workers"].serve(self.costs.worker_turn)
            number = self._least_asked(worker)
            self._count(worker, number, 1)
            first, _ = yield self.engines[number].generate(prompt, response)
            self._count(worker, number, -1)
            oldest = first if oldest is None else oldest
        yield self._queue(len(game), tokens(game))
        self._playing[step] -= 1
        self._first -= index < self.setup.batch
        heapq.heappush(self._over, Played(step, index, oldest or 0, game))
        self._over_turns += len(game)

    def _least_asked(self, worker: int) -> int:
        """The replica with the fewest requests of a rollout worker, which knows of no others; of equals any.

        The heap has older numbers of a replica besides its present one.
        """
        heap, asked = self._by_number[worker], self._asked[worker]
        while heap[0][:2] != asked[heap[0][2]]:
            heapq.heappop(heap)
        return heap[0][2]

    def _count(self, worker: int, replica: int, more: int) -> None:
        """A rollout worker has one request more at a replica, or one less."""
        number, _ = self._asked[worker][replica]
        self._asked[worker][replica] = asked = (number + more, self._lots.random())
        heapq.heappush(self._by_number[worker], (*asked, replica))

    def _queue(self, rows: int, size: int) -> float:
        """When TransferQueue has put or given out half of what rows cost, which are put once and read once."""
        stored = size * self.costs.token_bytes * self.costs.queue_byte / self.setup.storages
        return self.servers["TransferQueue"].serve((rows * self.costs.queue_row + stored) / 2)

    # -- the engine's weights ------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        """Break off all responses; each is asked for again after a while, of the same replica."""
        for engine in self.engines:
            for request in engine.pause():
                self.clock.start(self._ask_again(engine, request))

    def _ask_again(self, engine: Engine, request: Request) -> Process:
        yield self.clock.now + self.costs.retry
        engine.take(request)

    # -- the learner ---------------------------------------------------------------------------------------------------

    def _train(self) -> Process:
        setup, costs = self.setup, self.costs
        self._launch(int(setup.ahead_batches * setup.batch), 1)
        begin, before = 0.0, self._counters()
        for step in range(1, setup.steps + 1):
            if step == setup.skip + 1:
                begin, before = self.clock.now, self._counters()
            measured = step > setup.skip
            asked = self.clock.now
            self._launch(setup.batch, step)
            batch = yield from self._sample(step)
            waited = self.clock.now - asked
            if setup.mode == COLOCATE:
                self._pause()
            rows, size = sum(len(played.game) for played in batch), sum(tokens(played.game) for played in batch)
            yield self.servers["driver"].serve(costs.driver_step + rows * costs.driver_row)
            yield self._queue(rows, size)
            learn = costs.learner.seconds(size, setup.learner)
            yield self.clock.now + learn
            if setup.mode == SEPARATE:
                self._pause()
            yield self.clock.now + costs.update
            for engine in self.engines:
                engine.resume(step)
            self.trained += len(batch)
            if measured:
                self._waited.append(waited)
                self._learned += learn
                self._updated += costs.update
                self._ages.update(step - 1 - played.oldest for played in batch)
                self._turns += rows
                self._responses += sum(response for played in batch for _, response in played.game)
        return self._result(self.clock.now - begin, before)

    def _sample(self, step: int) -> Process:
        """The oldest games that are over, as soon as there are enough, seen by looks with pauses between them."""
        setup, costs, asked_with = self.setup, self.costs, -1
        while True:
            keys = self._playing.total() + len(self._over) + self._over_turns
            look = keys * costs.driver_key
            yield self.servers["driver"].serve(look)
            if setup.on_stale == DROP and setup.max_staleness is not None:
                self._drop(step, setup.max_staleness)
            enough = len(self._over) >= setup.batch and not (step == 1 and self._first)
            if enough and len(self._over) != asked_with:
                asked_with = len(self._over)  # until another game is over the answer stays the same
                if not self._must_wait(step):
                    batch = [heapq.heappop(self._over) for _ in range(setup.batch)]
                    self._over_turns -= sum(len(played.game) for played in batch)
                    return batch
            yield self.clock.now + costs.pause(look)

    def _must_wait(self, step: int) -> bool:
        """Whether games would become too old if the learner went on with the oldest ones that are over.

        As the recipe's ``GameBuffer``: of the games that were launched by a step, no more may be left than the steps
        train in which they are still young enough, or than there would be if the oldest of all were over.
        """
        setup = self.setup
        if setup.mode == SYNC or setup.on_stale != WAIT or setup.max_staleness is None:
            return False
        there = Counter(self._playing)
        there.update(played.launched for played in self._over)
        chosen = Counter(played.launched for played in heapq.nsmallest(setup.batch, self._over))
        waiting = at_best = 0
        oldest = setup.batch
        for launched in sorted(there):
            waiting += there[launched] - chosen[launched]
            at_best += there[launched] - min(there[launched], oldest)
            oldest -= min(there[launched], oldest)
            if waiting > max(setup.batch * (launched + setup.max_staleness - step), at_best):
                return True
        return False

    def _drop(self, step: int, most: int) -> None:
        """Leave out the games that are too old, and launch others."""
        kept = [played for played in self._over if step - 1 - played.oldest <= most]
        dropped = len(self._over) - len(kept)
        if dropped:
            heapq.heapify(kept)
            self._over, self._over_turns = kept, sum(len(played.game) for played in kept)
            self.dropped += dropped
            self._launch(dropped, step)

    # -- what is counted -----------------------------------------------------------------------------------------------

    def _counters(self) -> tuple[float, float, dict[str, float]]:
        for engine in self.engines:
            engine.account()
        return (
            sum(engine.busy for engine in self.engines),
            sum(engine.sequence_seconds for engine in self.engines),
            {name: servers.busy / servers.number for name, servers in self.servers.items()},
        )

    def _result(self, seconds: float, before: tuple[float, float, dict[str, float]]) -> Result:
        setup, (busy, sequences, others) = self.setup, self._counters()
        steps = setup.steps - setup.skip
        busy, sequences = busy - before[0], sequences - before[1]
        return Result(
            seconds=seconds / steps,
            play=sum(self._waited) / steps,
            learn=self._learned / steps,
            update=self._updated / steps,
            games=steps * setup.batch / seconds,
            turns=self._turns / seconds,
            response_tokens=self._responses / seconds,
            engine_idle=1 - busy / seconds / setup.engines,
            learner_idle=1 - self._learned / seconds,
            running=sequences / busy if busy else 0.0,
            busy={name: (total - before[2][name]) / seconds for name, total in others.items()},
            staleness={age: number / self._ages.total() for age, number in sorted(self._ages.items())},
            longest_wait=max(self._waited),
            launched=self.launched,
            trained=self.trained,
            dropped=self.dropped,
            in_flight=self._playing.total() + len(self._over),
        )


def simulate(setup: Setup, costs: Costs, draw: Draw) -> Result:
    """A run's result.

    Raises:
        Stuck: the learner waits for games that do not come.
    """
    return Run(setup, costs, draw).simulate()
