"""Processes that start before verl asks for them, and import while the run waits for others.

verl makes its actors one after another: a vLLM server when the policy is ready, a rollout worker when the servers are.
Each of these processes first imports for five to ten seconds, on one core. Here they start while the run still waits
for others, without arguments, and begin when verl makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ray


class BeginsLater:
    """A class of actors, first among its bases: made without arguments it waits for ``begin``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            super().__init__(*args, **kwargs)

    def begin(self, *args: Any, **kwargs: Any) -> None:
        """What making it with these arguments would have done."""
        self.__init__(*args, **kwargs)  # type: ignore[misc]


class EarlyActors:
    """In the place of an actor class, one of ``BeginsLater``, with the two calls by which verl makes an actor of it."""

    def __init__(self, actor_class: type) -> None:
        self._class: Any = ray.remote(actor_class)
        self._waiting: dict[str, Any] = {}
        self._next: Callable[[], None] | None = None

    def then(self, start: Callable[[], None]) -> None:
        """Have ``start`` called as soon as verl has made the first of these actors."""
        self._next = start

    def start(self, name: str, **options: Any) -> Any:
        """Start one that waits. verl's name for it must begin with ``name``, and its other options be these."""
        self._waiting[name] = self._class.options(name=name, **options).remote()
        return self._waiting[name]

    def options(self, *, name: str, **options: Any) -> SimpleNamespace:
        """What makes the actor by ``remote``: one that waits begins, or there is a new one.

        Its errors are RayError where the one that waits has died, or what it should do to begin failed.
        """
        early = next((self._waiting.pop(known) for known in list(self._waiting) if name.startswith(known)), None)
        late = self._class.options(name=name, **options)
        start, self._next = self._next, None

        def remote(*args: Any, **kwargs: Any) -> Any:
            if early is not None:
                ray.get(early.begin.remote(*args, **kwargs))
            made = late.remote(*args, **kwargs) if early is None else early
            if start is not None:
                start()
            return made

        return SimpleNamespace(remote=remote)


def on_one_machine() -> bool:
    """Whether Ray has one machine only: elsewhere nobody knows yet on which an actor will be."""
    return sum(node["Alive"] for node in ray.nodes()) == 1
