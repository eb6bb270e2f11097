"""What endpoints may spend, and what becomes of games where they fail or have spent it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral import rollout
from recipe.spiral.lab.opponents.api_costs import COSTS, Costs, Usage
from recipe.spiral.lab.opponents.api_player import NotAsked
from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.fake_queue import FakeQueue
from tests.lab.evaluation.made_policies import Fakes, evaluation
from tests.lab.opponents.endpoint import KEY, Endpoint, Serve, completion, drip, error, good, player, respond
from tests.test_rollout import Engine, keys, self_play, session

pytest.importorskip("openai", reason="needs the extra 'api'")


@pytest.mark.parametrize(
    ("budget", "answers"),
    [
        ({"budget_tokens": 240}, 2),  # 120 a response
        ({"budget_usd": 0.001, "price_in": 1.0, "price_out": 15.0}, 3),  # 0.0004 a response
    ],
)
def test_the_budget_is_asked_before_the_endpoint(serve: Serve, budget: dict[str, Any], answers: int) -> None:
    endpoint = serve(good())
    who = player(endpoint, **budget)
    for _ in range(answers):
        respond(who)
    with pytest.raises(NotAsked, match="budget_"):
        respond(who)
    assert len(endpoint.requests) == answers


@pytest.mark.parametrize("counts", [(0, 0), (100, 0), (0, 100), (10**4000, 20), (100, 10**12), (True, True)])
def test_a_budget_binds_where_the_endpoint_counts_nothing(serve: Serve, counts: tuple[int, int]) -> None:
    usage = dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))
    who = player(serve(good(completion("x" * 400, usage=usage))), budget_tokens=350)
    for _ in range(2):
        usage = Usage(**(respond(who).usage or {}))
        assert usage.estimated and 150 < usage.prompt_tokens + usage.response_tokens < 300
    with pytest.raises(NotAsked):
        respond(who)


def test_an_evaluations_budget_holds_for_all_its_starts_and_can_be_raised(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(good())

    def start(budget: int) -> int:
        """How many games' answers were paid for; a start's first question is not."""
        before = len(endpoint.requests)
        about = f'name: gpt, model: some, base_url: "{endpoint.url}", api_key_env: SOME_KEY, budget_tokens: {budget}'
        few = ["policies=[random]", f"opponents=[{{kind: api, {about}, max_concurrency: 1}}]"]
        with pytest.raises(NotAsked):
            evaluation(tmp_path, Fakes(), *few).run()
        return len(endpoint.requests) - before - 1

    assert [start(240), start(240), start(360)] == [2, 0, 1]


def test_processes_see_what_the_others_spend(tmp_path: Path) -> None:
    mine, other = Costs(tmp_path / COSTS), Costs(tmp_path / COSTS)
    for i in range(3):
        mine.add("gpt", Usage(10, 1, 0.5))
        other.add("claude" if i else "gpt", Usage(1, 1, None, True))
        assert mine.of("gpt") == other.of("gpt") == (11 * i + 13, 0.5 * (i + 1))
    assert mine.of("claude") == (4, 0.0)


def test_damaged_costs_are_not_nothing(tmp_path: Path) -> None:
    line = json.dumps({"name": "gpt", "prompt_tokens": 5})
    (tmp_path / COSTS).write_text(f"{line}\n{line[:-3]}", encoding="utf-8")
    assert Costs(tmp_path / COSTS).of("gpt") == (5, 0.0), "a process was killed within a line"
    (tmp_path / COSTS).write_text(f"{line[:-3]}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=COSTS):
        Costs(tmp_path / COSTS).of("gpt")


# -- at the table ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    FakeQueue.install(monkeypatch)
    rollout._players.clear()
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


@pytest.mark.parametrize("behaviour", [good(after=3.0), error(500), drip(200, 0.05)])
def test_a_failing_endpoint_voids_its_games_and_no_others(serve: Serve, model: str, behaviour: Any) -> None:
    outputs = asyncio.run(play([opponent(serve(behaviour))], model, 8))
    played = game_channel.take(keys(*rows(8)))
    assert {record.opponent for record in played.records} == {"self"} and len(played.records) == 8
    assert {game.discarded for game in played.discarded} == {"void"}
    assert {game.opponent for game in played.discarded} == {"gpt"}
    assert len({game.key.first_try() for game in played.discarded}) == 8, "each of them is known"
    assert any("left alone" in (game.reason or "") for game in played.discarded)
    assert not any(KEY in game.to_json() for game in played.discarded)
    assert [bool(output[0]) for output in outputs] == [True, False] * 8, "a void game has no rows"


def test_a_budget_is_that_of_the_run(serve: Serve, model: str) -> None:
    """120 tokens a turn, of which two are played at a time. Another process, or start, of the run goes on."""
    endpoint = serve(good(completion("\\boxed{[4]}")))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0, budget_tokens=600)]
    asyncio.run(play(entries, model, 16))
    played = game_channel.take(keys(*rows(16)))
    assert 5 <= len(endpoint.requests) <= 6
    assert Costs(Path(model) / COSTS).of("gpt")[0] == 120 * len(endpoint.requests)
    assert any("budget_tokens=600" in str(game.reason) for game in played.discarded)
    before, played_before = len(endpoint.requests), rollout._players.pop("gpt")
    asyncio.run(play(entries, model, 4, step=2))
    assert len(endpoint.requests) == before and rollout._players["gpt"] is not played_before
