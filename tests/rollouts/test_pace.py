"""Where a game's time went: each game has its own account, however many are played side by side."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from recipe.spiral.rollouts import pace
from recipe.spiral.rollouts.pace import ENGINE_SECONDS, Pace


async def game(answers: list[float]) -> Pace:
    pace.begin()
    for seconds in answers:
        await asyncio.sleep(0.01)
        pace.answered({ENGINE_SECONDS: seconds})
    return pace.end()


def test_games_side_by_side_keep_apart() -> None:
    async def both() -> list[Pace]:
        return await asyncio.gather(*(asyncio.create_task(game(answers)) for answers in ([1.0, 2.0], [4.0])))

    first, second = asyncio.run(both())
    assert (first.engine, second.engine) == (3.0, 4.0)
    assert first.seconds >= 0.02 and second.seconds >= 0.01


def test_the_process_reports_its_cpu_seconds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cpu = iter([0.0, 10.0, 10.1, 10.2, 20.0, 20.05]), iter([5.0, 6.5, 8.0, 10.5])
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: next(clock), process_time=lambda: next(cpu)))
    seconds = pace._Cpu()
    assert seconds.new() == 0.0, "what it took before is nobody's"
    assert [seconds.new() for _ in range(5)] == [1.5, 0.0, 1.5, 2.5, 0.0], "a look takes long: not for each game"


def test_an_engine_that_says_nothing_counts_as_none() -> None:
    async def run() -> Pace:
        pace.begin()
        pace.answered({})
        pace.answered({ENGINE_SECONDS: None})
        return pace.end()

    assert asyncio.run(run()).engine == 0.0


def test_an_answer_outside_of_a_game_is_nobodys() -> None:
    pace.answered({ENGINE_SECONDS: 1.0})


def test_a_game_that_never_began_cannot_end() -> None:
    async def run() -> None:
        pace.end()

    with pytest.raises(AssertionError):
        asyncio.run(run())


def test_branches_side_by_side_are_in_an_engine_no_longer_than_they_last() -> None:
    async def run() -> Pace:
        pace.begin()
        pace.answered({ENGINE_SECONDS: 0.001})
        own = pace.end()
        return pace.total([own, *await asyncio.gather(*(game([0.01, 0.01]) for _ in range(3)))])

    together = asyncio.run(run())
    assert together.engine == pytest.approx(0.061) and together.seconds >= 0.06
