"""Games begin where the fewest are: in processes of their own, or in those of the policy's servers."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

from recipe.spiral.processes.garbage import THRESHOLDS
from recipe.spiral.runtime import rollout_worker
from recipe.spiral.runtime.rollout_worker import RolloutManager, RolloutWorker
from recipe.spiral.runtime.server import FastServer


class Worker:
    """A Ray actor that plays games, as far as the manager knows."""

    def __init__(self, games: int = 0) -> None:
        self.games = games
        self.given: list[int] = []
        self.made_with: tuple[Any, ...] = ()
        self.generate_sequences = SimpleNamespace(remote=lambda batch: self.given.extend(batch["index"].tolist()))
        self.games_under_way = SimpleNamespace(remote=lambda: self.games)
        self.take_part = SimpleNamespace(remote=self._take_part)

    async def _take_part(self, *given: Any) -> None:
        self.made_with = given


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_worker.ray, "get", lambda results: results)


def manager(workers: list[Worker], own: int = 0) -> RolloutManager:
    rollout = {"agent": {"num_workers": own}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "model": {}}})
    return RolloutManager(config, SimpleNamespace(servers=workers), None, [])


def batch(games: int) -> TensorDict:
    index = torch.arange(games)
    ragged = torch.nested.as_nested_tensor([torch.ones(1 + number) for number in range(games)], layout=torch.jagged)
    return TensorDict({"index": index, "ragged": ragged}, batch_size=games)


def test_the_servers_play_where_there_are_no_other_processes() -> None:
    servers = [Worker(), Worker()]
    made = manager(servers)
    asyncio.run(made._init_agent_loop_workers())
    assert made.agent_loop_workers == servers
    assert [server.made_with for server in servers] == [(made.config, made.llm_client, None, [])] * 2


@pytest.mark.parametrize(
    ("new", "there", "expected"),
    [
        (8, [0, 0, 0, 0], [2, 2, 2, 2]),
        (1, [3, 2, 2], [0, 1, 0]),
        (7, [0, 5, 2], [5, 0, 2]),
        (2, [0, 10], [2, 0]),
        (5, [0, 0, 0], [2, 2, 1]),
    ],
)
def test_new_games_even_out_what_is_there(new: int, there: list[int], expected: list[int]) -> None:
    made = manager([])
    made.agent_loop_workers = workers = [Worker(count) for count in there]
    made.play(batch(new))
    assert [len(worker.given) for worker in workers] == expected


@pytest.mark.parametrize(
    ("games", "expected"),
    [([0, 0], [[0, 1, 2], [3, 4]]), ([7, 1], [[], [0, 1, 2, 3, 4]]), ([3], [[0, 1, 2, 3, 4]])],
)
def test_each_game_begins_once(games: list[int], expected: list[list[int]]) -> None:
    workers = [Worker(count) for count in games]
    made = manager(workers)
    made.agent_loop_workers = workers
    told: list[list[Any]] = []
    made.on_launch = lambda batch: told.append([worker.given for worker in workers if worker.given])
    made.generate_sequences(batch(5))
    assert told == [[]], "before they begin"
    assert [worker.given for worker in workers] == expected


def test_the_end_of_all_games_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[list[str], int, float]] = []
    over: set[str] = set()

    def wait(calls: list[str], *, num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        waits.append((calls, num_returns, timeout))
        return [call for call in calls if call in over], [call for call in calls if call not in over]

    asked = iter(["a1", "b1", "a2", "b2"])
    worker = SimpleNamespace(until_over=SimpleNamespace(remote=lambda: next(asked)))
    monkeypatch.setattr(rollout_worker.ray, "wait", wait)
    made = manager([])
    made.agent_loop_workers = [worker, worker]
    for call in ("a1", "b1", "b2"):
        over.add(call)
        made.wait_until_over(0.5)
    assert waits == [(["a1", "b1"], 2, 0.5), (["b1"], 1, 0.5), (["a2", "b2"], 2, 0.5)]


def test_a_worker_says_when_its_games_are_over() -> None:
    async def play() -> list[str]:
        said: list[str] = []
        worker = object.__new__(RolloutWorker)
        worker.background_tasks = set()

        def begin(seconds: float, then: float = 0.0) -> None:
            async def game() -> None:
                await asyncio.sleep(seconds)
                said.append("game")
                if then:
                    begin(then)

            task = asyncio.create_task(game())
            worker.background_tasks.add(task)
            task.add_done_callback(worker.background_tasks.discard)

        await worker.until_over()
        said.append("over")
        begin(0.01)
        begin(0.02, then=0.02)
        await worker.until_over()
        return [*said, "over"]

    assert asyncio.run(play()) == ["over", "game", "game", "game", "over"]


def test_a_worker_collects_garbage_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    monkeypatch.setattr(rollout_worker._VerlWorker, "__init__", lambda worker, config: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    try:
        worker = object.__new__(RolloutWorker)
        RolloutWorker.__init__(worker, "config")
        assert gc.get_threshold() == THRESHOLDS
    finally:
        gc.set_threshold(*before)


def test_a_server_that_takes_part_asks_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stayed: list[Any] = []
    began: list[Any] = []

    class Part:
        def __init__(self, config: str, client: Any) -> None:
            assert config == "config"
            self.llm_client = client

        async def generate_sequences(self, batch: str) -> None:
            began.append(batch)

        async def games_under_way(self) -> int:
            return len(began)

    monkeypatch.setattr(rollout_worker, "RolloutWorker", Part)
    server = object.__new__(FastServer)
    server.take_part("config", SimpleNamespace(stay=stayed.append))
    asyncio.run(server.generate_sequences("some games"))
    assert stayed == [server] and began == ["some games"] and asyncio.run(server.games_under_way()) == 1
