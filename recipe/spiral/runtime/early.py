"""Processes that start before verl asks for them, and import while the run waits for others.

verl makes its actors one after another: a vLLM server when the policy is ready. Its process first imports for five to
ten seconds, on one core. Here it starts while the run still waits for others, without arguments, and begins when verl
makes it.
"""

from __future__ import annotations

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

    def start(self, name: str, **options: Any) -> Any:
        """Start one that waits. verl's name for it must begin with ``name``, and its other options be these."""
        self._waiting[name] = self._class.options(name=name, **options).remote()
        return self._waiting[name]

    def options(self, *, name: str, **options: Any) -> Any:
        """What makes the actor by ``remote``: one that waits begins, or there is a new one.

        Its errors are RayError where the one that waits has died, or what it should do to begin failed.
        """
        early = next((self._waiting.pop(known) for known in list(self._waiting) if name.startswith(known)), None)
        if early is None:
            return self._class.options(name=name, **options)

        def remote(*args: Any, **kwargs: Any) -> Any:
            ray.get(early.begin.remote(*args, **kwargs))
            return early

        return SimpleNamespace(remote=remote)


def on_one_machine() -> bool:
    """Whether Ray has one machine only: elsewhere nobody knows yet on which an actor will be."""
    return sum(node["Alive"] for node in ray.nodes()) == 1
