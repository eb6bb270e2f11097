"""An inference engine with continuous batching: all running sequences get one token in each iteration.

An iteration takes ``iteration + sequence * running`` seconds, so that a sequence's speed falls with the batch. A prompt
takes ``prompt_token`` seconds a token, in which nobody else gets tokens. More than ``most_sequences`` wait.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from .clock import Clock, Signal
from .figures import EngineCosts


@dataclass
class Request:
    """A response that is being written.

    Attributes:
        prompt: tokens to read before the next token: the prompt, and after a break also what was written.
        left: tokens still to write.
        first: the version of the weights that wrote its first token.
        end: the engine's position at which it is complete.
        done: happens with (first, last) version.
    """

    prompt: float
    left: float
    first: int | None = None
    end: float = 0.0
    done: Signal = field(default_factory=Signal)


class Engine:
    """One replica.

    Attributes:
        version: of its weights.
        tokens: how many it has written.
        busy: seconds in which it has worked.
        sequence_seconds: the sum over sequences of the seconds in which they ran.
    """

    def __init__(self, clock: Clock, costs: EngineCosts, version: int = 0) -> None:
        self._clock, self._costs = clock, costs
        self.version, self.tokens = version, 0.0
        self.busy = self.sequence_seconds = 0.0
        self._running: list[tuple[float, int, Request]] = []
        self._waiting: deque[Request] = deque()
        self._numbers = count()
        self._position = 0.0  # tokens that a sequence would have that had always run
        self._reading = 0.0  # seconds of prompts that are still to be read
        self._updated = 0.0
        self._plan = 0
        self._paused = False

    def generate(self, prompt: float, response: float) -> Signal:
        """Ask for a response. The signal happens with the first and the last version that wrote it."""
        request = Request(prompt, response)
        self._advance()
        self._waiting.append(request)
        self._admit()
        return request.done

    def take(self, request: Request) -> None:
        """Go on with a response that was broken off: the prompt and what was written are read again."""
        self._advance()
        self._waiting.append(request)
        self._admit()

    def pause(self) -> list[Request]:
        """Break off all responses that run, and start no others. Returns them, with what is left of each."""
        self._advance()
        self._paused, self._reading = True, 0.0
        broken_off = [request for _, _, request in sorted(self._running)]
        for request in broken_off:
            left = max(request.end - self._position, 0.0)
            request.prompt, request.left = request.prompt + request.left - left, left
        self._running = []
        self._plan += 1
        return broken_off

    def resume(self, version: int) -> None:
        """Go on with these weights."""
        self._advance()
        self._paused, self.version = False, version
        self._admit()

    def account(self) -> None:
        """Bring what is counted up to now."""
        self._advance()

    def _seconds_a_token(self) -> float:
        return self._costs.iteration + self._costs.sequence * len(self._running)

    def _advance(self) -> None:
        elapsed, self._updated = self._clock.now - self._updated, self._clock.now
        if not self._running or elapsed <= 0:
            return
        self.busy += elapsed
        self.sequence_seconds += elapsed * len(self._running)
        read = min(elapsed, self._reading)
        self._reading -= read
        written = (elapsed - read) / self._seconds_a_token()
        self._position += written
        self.tokens += written * len(self._running)

    def _admit(self) -> None:
        while not self._paused and self._waiting and len(self._running) < self._costs.most_sequences:
            request = self._waiting.popleft()
            request.end = self._position + request.left
            if request.first is None:
                request.first = self.version
            self._reading += request.prompt * self._costs.prompt_token
            heapq.heappush(self._running, (request.end, next(self._numbers), request))
        self._plan += 1
        if self._running:
            plan, left = self._plan, max(self._running[0][0] - self._position, 0.0)
            at = self._clock.now + self._reading + left * self._seconds_a_token()
            self._clock.at(at, lambda: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        self._position = max(self._position, self._running[0][0])  # what rounding left
        while self._running and self._running[0][0] <= self._position:
            request = heapq.heappop(self._running)[2]
            self._clock.fire(request.done, (request.first, self.version))
        self._admit()
