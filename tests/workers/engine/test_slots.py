"""The trainer's side of the slots: their settings, their devices, and which model is in which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.workers.engine import slots
from recipe.spiral.workers.engine.slots import SlotEngine


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's reference is the call itself."""
    ray = SimpleNamespace(get=lambda calls: [call() for call in calls], available_resources=lambda: {"GPU": 2.0})
    monkeypatch.setattr(slots, "ray", ray)


class Server:
    """A server behind Ray, on a GPU: methods by name, called when their references are asked for."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            self.called.append(" ".join([name, *map(str, args), *kwargs]))
            does = getattr(type(self), f"_{name}", lambda *args: None)
            return lambda: does(self, *args)

        return SimpleNamespace(remote=remote)

    def _load(self, name: str, path: str) -> None:
        self.model = name

    def _loaded(self) -> str | None:
        return self.model

    def _sleep(self) -> None:
        self.model = None


def engine(count: int, models: int, overlapping: bool = False) -> tuple[SlotEngine, list[Server]]:
    servers = [Server() for _ in range(count)]
    return SlotEngine([SimpleNamespace(servers=[server]) for server in servers], models, overlapping), servers


def paths(*names: str) -> dict[str, Path]:
    return {name: Path(f"/{name}") for name in names}


def test_a_model_keeps_its_place_and_is_loaded_again_after_a_sleep() -> None:
    served, servers = engine(5, 2)
    assert served.load(paths("a", "b")) == {"a": (0, 2, 4), "b": (1, 3)}
    assert [server.model for server in servers] == ["a", "b", "a", "b", "a"]
    served.load(paths("b", "a"))
    assert [server.called.count("load a /a") + server.called.count("load b /b") for server in servers] == [1] * 5
    served.sleep()
    assert served.load(paths("c", "b")) == {"b": (1, 3), "c": (0, 2, 4)}
    assert [server.model for server in servers] == ["c", "b", "c", "b", "c"]
    assert not any("abort_all_requests" in call for server in servers for call in server.called)


def test_where_games_go_on_answers_are_broken_off_until_the_models_are_loaded_again() -> None:
    served, (server,) = engine(1, 1, overlapping=True)
    served.load(paths("a"))
    served.sleep()
    served.load(paths("a"))
    again = ["wake_up", "loaded", "load a /a", "resume_generation"]
    assert server.called == [*again[:3], "abort_all_requests reject_request", "sleep", *again]
