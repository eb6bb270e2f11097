"""Games begin where the fewest are: in processes of their own, or in those of the policy's servers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

from recipe.spiral.serving import rollout_worker
from recipe.spiral.serving.rollout_worker import RolloutManager, shares
from recipe.spiral.workers.engine.vllm import VLLMServer


@pytest.mark.parametrize(
    ("new", "there", "expected"),
    [
        (8, [0, 0, 0, 0], [2, 2, 2, 2]),
        (1, [3, 2, 2], [0, 1, 0]),
        (7, [0, 5, 2], [5, 0, 2]),
        (2, [0, 10], [2, 0]),
        (5, [0, 0, 0], [2, 2, 1]),
        (0, [1, 2], [0, 0]),
    ],
)
def test_new_games_even_out_what_is_there(new: int, there: list[int], expected: list[int]) -> None:
    assert shares(new, there) == expected


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
    ("games", "expected"),
    [([0, 0], [[0, 1, 2], [3, 4]]), ([7, 1], [[], [0, 1, 2, 3, 4]]), ([3], [[0, 1, 2, 3, 4]])],
)
def test_each_game_begins_once(games: list[int], expected: list[list[int]]) -> None:
    workers = [Worker(count) for count in games]
    made = manager(workers)
    made.agent_loop_workers = workers
    made.generate_sequences(batch(5))
    assert [worker.given for worker in workers] == expected


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
    server = object.__new__(VLLMServer)
    server.take_part("config", SimpleNamespace(stay=stayed.append))
    asyncio.run(server.generate_sequences("some games"))
    assert stayed == [server] and began == ["some games"] and asyncio.run(server.games_under_way()) == 1
