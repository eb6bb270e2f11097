"""Opponents behind endpoints at the table: what they may spend, and what becomes of games where they fail."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral import rollout
from recipe.spiral.lab.opponents.api.usage import COSTS, Costs, Usage
from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.fake_queue import FakeQueue
from tests.lab.opponents.asking import KEY, Serve
from tests.lab.opponents.conftest import key, serve  # noqa: F401  (fixtures)
from tests.lab.opponents.endpoint import Endpoint, completion, drip, error, good
from tests.test_rollout import Engine, keys, self_play, session


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    rollout._players.clear()
    return FakeQueue.install(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> str:
    end_tokens.cache_clear()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 0}')
    return str(tmp_path)


def opponent(endpoint: Endpoint, **settings: Any) -> dict[str, Any]:
    quick = {"timeout": 0.3, "total_timeout": 0.6, "retries": 0, "max_concurrency": 2}
    place = {"kind": "api", "name": "gpt", "model": "some/model", "base_url": endpoint.url, "api_key_env": "SOME_KEY"}
    return {**place, "share": 0.5, **quick, **settings}


async def play(entries: list[dict[str, Any]], model: str, games: int, step: int = 1) -> list[Any]:
    """Games against the endpoint, and as many of self-play beside them."""

    async def one(row: dict[str, Any]) -> list[Any]:
        loops = [session(Engine(), model) for _ in range(row["__rollout_n__"])]
        for loop in loops:
            loop.config.opponents, loop.config.run_dir = entries, model
        plain = {name: value for name, value in row.items() if name != "__rollout_n__"}
        return list(await asyncio.gather(*(loop.run({}, session_id=i, **plain) for i, loop in enumerate(loops))))

    return list(await asyncio.gather(*map(one, rows(games, step))))


def rows(games: int, step: int = 1) -> list[dict[str, Any]]:
    made = []
    for index in range(2 * games):
        row = self_play(1000 * (step - 1) + index)
        seat = Seat(Opponent("gpt", "gpt"), (index % 4 // 2,)) if index % 2 else Seat()
        made.append({**row, **seat.columns()})
    return made


BAD = {
    "hangs": lambda: good(after=3.0),
    "answers 500": lambda: error(500),
    "drips": lambda: drip(200, 0.05),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_failing_endpoint_voids_its_games_and_no_others(serve: Serve, model: str, kind: str) -> None:  # noqa: F811
    endpoint = serve(*(BAD[kind]() for _ in range(200)))
    outputs = asyncio.run(play([opponent(endpoint)], model, 8))
    played = game_channel.take(keys(*rows(8)))
    assert {record.opponent for record in played.records} == {"self"} and len(played.records) == 8
    assert {game.discarded for game in played.discarded} == {"void"}
    assert {game.opponent for game in played.discarded} == {"gpt"}
    assert len({game.key.first_try() for game in played.discarded}) == 8, "each of them is known"
    assert any("left alone" in (game.reason or "") for game in played.discarded)
    assert not any(KEY in game.to_json() for game in played.discarded)
    assert [bool(output[0]) for output in outputs] == [True, False] * 8, "a void game has no rows"


def test_a_budget_is_that_of_the_run(serve: Serve, model: str) -> None:  # noqa: F811
    """120 tokens a turn, of which two are played at a time. Another process, or start, of the run goes on."""
    endpoint = serve(*(good(completion("\\boxed{[4]}")) for _ in range(400)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0, budget_tokens=600)]
    asyncio.run(play(entries, model, 16))
    played = game_channel.take(keys(*rows(16)))
    assert 5 <= len(endpoint.requests) <= 6
    spent = Costs(Path(model) / COSTS).of("gpt")
    assert spent.tokens == 120 * len(endpoint.requests)
    assert any("budget_tokens=600 is spent" in str(game.reason) for game in played.discarded)
    before, played_before = len(endpoint.requests), rollout._players.pop("gpt")
    asyncio.run(play(entries, model, 4, step=2))
    assert len(endpoint.requests) == before and rollout._players["gpt"] is not played_before


def test_processes_see_what_the_others_spend(tmp_path: Path) -> None:
    mine, other = Costs(tmp_path / COSTS), Costs(tmp_path / COSTS)
    for i in range(3):
        mine.add("gpt", Usage(10, 1, 0.5))
        other.add("claude" if i else "gpt", Usage(1, 1, None, True))
        assert mine.of("gpt") == other.of("gpt") == Usage(10 * i + 11, i + 2, 0.5 * (i + 1), True)
    assert mine.of("claude") == Usage(2, 2, None, True)


def test_damaged_costs_are_not_nothing(tmp_path: Path) -> None:
    line = json.dumps({"name": "gpt", "prompt_tokens": 5})
    (tmp_path / COSTS).write_text(f"{line}\n{line[:-3]}", encoding="utf-8")
    assert Costs(tmp_path / COSTS).of("gpt").tokens == 5, "a process was killed within a line"
    (tmp_path / COSTS).write_text(f"{line[:-3]}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=COSTS):
        Costs(tmp_path / COSTS).of("gpt")
