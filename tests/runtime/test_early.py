"""Actors that start before verl makes them: verl's two calls, and what an early actor is told by them."""

from __future__ import annotations

from typing import Any

import pytest

from recipe.spiral.runtime import early
from recipe.spiral.runtime.early import BeginsLater, EarlyActors


class Verls:
    def __init__(self, first: int, *, second: int) -> None:
        self.made = (first, second)


class Ours(BeginsLater, Verls):
    pass


class FakeRay:
    """Actors in this process; a call of a method gives its outcome at once."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []

    def remote(self, cls: type) -> Any:
        ray = self

        class Remote:
            def options(self, **options: Any) -> Any:
                self.chosen = options
                return self

            def remote(self, *args: Any, **kwargs: Any) -> Any:
                ray.made.append(self.chosen)
                actor = cls(*args, **kwargs)
                actor.options = self.chosen
                begin = actor.begin
                actor.begin = type("Method", (), {"remote": staticmethod(lambda *a, **k: lambda: begin(*a, **k))})
                return actor

        class Class:
            def options(self, **options: Any) -> Any:
                return Remote().options(**options)

        return Class()

    def get(self, call: Any) -> Any:
        return call()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(early, "ray", fake)
    return fake


def test_without_arguments_it_waits() -> None:
    waiting = Ours()
    assert not hasattr(waiting, "made")
    waiting.begin(1, second=2)
    assert waiting.made == Ours(1, second=2).made == (1, 2)


def test_verl_gets_the_one_that_waits_under_its_name(ray: FakeRay) -> None:
    actors = EarlyActors(Ours)
    actors.start("server_0", max_concurrency=5)
    actor = actors.options(name="server_0_of_the_run", max_concurrency=5).remote(3, second=4)
    assert actor.made == (3, 4)
    assert ray.made == [{"name": "server_0", "max_concurrency": 5}]


def test_another_name_and_a_second_of_one_name_are_made_anew(ray: FakeRay) -> None:
    actors = EarlyActors(Ours)
    actors.start("server_0")
    for name in ("slot_0", "server_0", "server_0"):
        assert actors.options(name=name).remote(1, second=2).made == (1, 2)
    assert [made["name"] for made in ray.made] == ["server_0", "slot_0", "server_0"]


def test_an_error_of_the_beginning_is_raised(ray: FakeRay) -> None:
    actors = EarlyActors(Ours)
    actors.start("server_0")
    with pytest.raises(TypeError):
        actors.options(name="server_0").remote(1)
