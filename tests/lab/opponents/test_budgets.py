"""Opponents behind endpoints at the table: what they may spend, and what becomes of games where they fail."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.utils.tensordict_utils import get_tensordict

from recipe.spiral import rollout
from recipe.spiral.lab.opponents.api.endpoint_player import BudgetSpent
from recipe.spiral.lab.opponents.api.endpoint_settings import ApiSettings
from recipe.spiral.lab.opponents.budgets import PATIENCE, Budgets, EndpointPlayer, Spent, read_costs
from recipe.spiral.opponents.fixed_opponents import parse_opponents
from recipe.spiral.players.records import Usage
from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.training.launched import Launched, launch
from tests.fake_queue import FakeQueue
from tests.lab.opponents.asking import KEY, Serve
from tests.lab.opponents.conftest import key, serve  # noqa: F401  (fixtures)
from tests.lab.opponents.endpoint import Endpoint, completion, drip, error, good, send
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
    quick = {"timeout": 0.3, "total_timeout": 0.6, "retries": 1, "backoff": 0.01, "max_concurrency": 2}
    place = {"kind": "api", "name": "gpt", "model": "some/model", "base_url": endpoint.url, "api_key_env": "SOME_KEY"}
    return {**place, "share": 0.5, **quick, **settings}


def unlimited(step: int) -> str:
    return json.dumps({"tokens": None, "usd": None, "number": step})


async def play(entries: list[dict[str, Any]], model: str, games: int, step: int = 1, quota: str = "") -> list[Any]:
    """Games against the endpoint, and as many of self-play beside them."""

    async def one(row: dict[str, Any]) -> list[Any]:
        loops = [session(Engine(), model) for _ in range(row["__rollout_n__"])]
        for loop in loops:
            loop.config.opponents = entries
        plain = {name: value for name, value in row.items() if name != "__rollout_n__"}
        return list(await asyncio.gather(*(loop.run({}, session_id=i, **plain) for i, loop in enumerate(loops))))

    return list(await asyncio.gather(*map(one, rows(games, step, quota or unlimited(step)))))


def rows(games: int, step: int = 1, quota: str = "") -> list[dict[str, Any]]:
    made = []
    for index in range(2 * games):
        row = self_play(1000 * (step - 1) + index)
        seat = Seat(Opponent("gpt", "gpt"), (index % 4 // 2,), quota=quota) if index % 2 else Seat()
        made.append({**row, **seat.columns()})
    return made


BAD = {
    "hangs": lambda: good(after=3.0),
    "answers 500": lambda: error(500),
    "sends rubbish": lambda: send(200, b"<html>"),
    "drips": lambda: drip(200, 0.05),
    "breaks off": lambda: send(200, b'{"id', length=500),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_failing_endpoint_voids_its_games_and_no_others(serve: Serve, model: str, kind: str) -> None:  # noqa: F811
    endpoint = serve(*(BAD[kind]() for _ in range(200)))
    outputs = asyncio.run(play([opponent(endpoint)], model, 8))
    played = game_channel.take(keys(*rows(8)))
    assert {record.opponent for record in played.records} == {"self"} and len(played.records) == 8
    assert {game.discarded for game in played.discarded} == {"void"} and {
        game.opponent for game in played.discarded
    } == {"gpt"}
    assert len({game.key.first_try() for game in played.discarded}) == 8, "each of them is known"
    assert any("left alone" in (game.reason or "") for game in played.discarded)
    assert not any(KEY in game.to_json() for game in played.discarded)
    assert [bool(output[0]) for output in outputs] == [True, False] * 8, "a void game has no rows"
    assert len(endpoint.requests) <= 2 * (PATIENCE + 2), "8 games, of which few were asked about"


def test_an_endpoint_that_is_well_again_is_asked_in_the_next_step(serve: Serve, model: str) -> None:  # noqa: F811
    endpoint = serve(*(error(400) for _ in range(PATIENCE)), *(good() for _ in range(400)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0)]
    asyncio.run(play(entries, model, 8))
    first = game_channel.take(keys(*rows(8)))
    assert any("left alone" in (game.reason or "") for game in first.discarded)
    asyncio.run(play(entries, model, 4, step=2))
    second = game_channel.take(keys(*rows(4, step=2)))
    assert len(second.records) == 8 and not second.discarded


def test_a_dead_endpoint_is_tried_by_few_games_of_the_next_step(serve: Serve, model: str) -> None:  # noqa: F811
    endpoint = serve(*(good(after=3.0) for _ in range(100)))
    entries = [opponent(endpoint)]
    asyncio.run(play(entries, model, 8))
    before = len(endpoint.requests)
    asyncio.run(play(entries, model, 8, step=2))
    assert len(endpoint.requests) - before <= 4, "max_concurrency=2 games, each with a repetition"
    played = game_channel.take(keys(*rows(8), *rows(8, step=2)))
    assert len({game.key.first_try() for game in played.discarded if game.key.step == 2}) == 8


def test_a_refused_key_voids_its_games_and_is_not_shown(serve: Serve, model: str) -> None:  # noqa: F811
    endpoint = serve(*(error(401, f"bad key {KEY}") for _ in range(20)))
    asyncio.run(play([opponent(endpoint)], model, 1))
    played = game_channel.take(keys(*rows(1)))
    assert [game.discarded for game in played.discarded] == ["void", "void"], "and played once more"
    assert all("the key was refused: check api_key_env=SOME_KEY" in str(game.reason) for game in played.discarded)
    assert not any(KEY in game.to_json() for game in played.discarded)


PAY = "You exceeded your current quota."


def test_an_endpoint_that_wants_to_be_paid_is_asked_once_a_step_and_its_words_are_recorded(
    serve: Serve,  # noqa: F811
    model: str,
) -> None:
    body = json.dumps({"error": {"message": PAY, "code": "insufficient_quota"}}).encode()
    endpoint = serve(*(send(429, body) for _ in range(100)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0, retries=4, max_concurrency=1)]
    for step in (1, 2):
        asyncio.run(play(entries, model, 8, step=step))
        assert len(endpoint.requests) == step
        played = game_channel.take(keys(*rows(8, step=step)))
        assert len(played.discarded) == 8 and all(PAY in str(game.reason) for game in played.discarded)


def budgets(folder: Path, processes: int, **limits: Any) -> Budgets:
    entry = {"kind": "api", "name": "gpt", "model": "m", "price_in": 1.0, "price_out": 1.0, **limits}
    made = Budgets(parse_opponents([entry]), processes, folder / "spent.json")
    made.reports = game_channel.take_spent
    return made


def test_what_is_spent_travels_with_the_games_and_is_held_to(serve: Serve, model: str, tmp_path: Path) -> None:  # noqa: F811
    """120 tokens a turn, of which two are played at a time: the quota of 300 ends after three or four."""
    endpoint = serve(*(good(completion("\\boxed{[4]}")) for _ in range(400)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0)]
    of_run = budgets(tmp_path, processes=2, budget_tokens=600)
    for step in (1, 2, 3):
        asyncio.run(play(entries, model, 8, step, of_run.quotas()["gpt"]))
        played = game_channel.take(keys(*rows(8, step)))
        of_run.fetch()
        assert any("tokens is spent" in (game.reason or "") for game in played.discarded)
        assert len({game.key.index for game in played.discarded}) == len(played.discarded), "not played again"
    assert len(endpoint.requests) * 120 == of_run.spent["gpt"].tokens
    assert of_run.spent["gpt"].tokens <= 600 + 3 * 120 * 2


def test_the_batches_of_a_validation_spend_one_budget(serve: Serve, model: str, tmp_path: Path) -> None:  # noqa: F811
    """What one batch spent is known when the next one gets its quotas."""
    endpoint = serve(*(good(completion("\\boxed{[4]}")) for _ in range(400)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0, max_concurrency=1)]
    left: list[int] = []

    league: Any = SimpleNamespace(budgets=budgets(tmp_path, processes=1, budget_tokens=600))
    seats = [Seat(Opponent("gpt", "gpt"), (0,)).columns()["seat"]]
    for index in range(4):
        one = GameKey("val", 0, 0, index).to_dict()
        row = {"uid": [str(index)], "key": [one], "seat": seats, "agent_name": ["spiral_game"]}
        launch(batch := get_tensordict(row), Launched(), league)
        [seat] = list(batch["seat"])
        left.append(json.loads(seat["quota"])["tokens"])
        asyncio.run(play(entries, model, 1, len(left), seat["quota"]))
    assert 0 < left[1] < 600 and sorted(left, reverse=True) == left and left[-1] == 0
    assert len(endpoint.requests) == 5, "120 tokens each"


def test_games_of_several_steps_spend_one_quota(serve: Serve, model: str) -> None:  # noqa: F811
    """As in the asynchronous modes: a game of step 1 is played again after one of step 5 has begun."""
    endpoint = serve(*(good(completion("\\boxed{[4]}")) for _ in range(400)))
    entries = [opponent(endpoint, timeout=5.0, total_timeout=9.0, max_concurrency=1)]
    for number in (1, 5, 1, 5, 1):
        asyncio.run(play(entries, model, 8, quota=json.dumps({"tokens": 300, "usd": None, "number": number})))
    assert len(endpoint.requests) == 2 * 3, "120 tokens each: 360 of either quota"


def test_an_older_quota_does_not_try_an_endpoint_that_is_left_alone(serve: Serve, model: str) -> None:  # noqa: F811
    endpoint = serve(*(error(400) for _ in range(100)))
    entries = [opponent(endpoint)]
    for number in (4, 5):
        asyncio.run(play(entries, model, 8, quota=unlimited(number)))
    before = len(endpoint.requests)
    for number in (4, 5, 4):
        asyncio.run(play(entries, model, 8, quota=unlimited(number)))
    assert len(endpoint.requests) == before


def test_what_the_trainer_does_not_know_of_counts_for_the_next_quota() -> None:
    settings = ApiSettings.from_mapping({"model": "m", "base_url": "http://localhost:1", "api_key_env": None})
    player = EndpointPlayer(settings, "gpt")
    player.take(json.dumps({"tokens": 300, "usd": None, "number": 1}))
    player.count(Usage(100))
    player.report()
    player.count(Usage(200))
    player.take(json.dumps({"tokens": 200, "usd": None, "number": 2}))
    with pytest.raises(BudgetSpent, match="200 tokens"):
        player.check()


def test_costs_are_known_before_their_games_are_trained(serve: Serve, model: str, tmp_path: Path) -> None:  # noqa: F811
    endpoint = serve(*(good(completion("\\boxed{[4]}")) for _ in range(400)))
    of_run = budgets(tmp_path, processes=1, budget_tokens=600)
    asyncio.run(play([opponent(endpoint, timeout=5.0, total_timeout=9.0)], model, 8, 1, of_run.quotas()["gpt"]))
    assert json.loads(of_run.quotas()["gpt"])["tokens"] == 0 and of_run.reached("gpt")
    assert read_costs(tmp_path / "spent.json")["gpt"].prompt_tokens >= 500
    of_run.fetch()
    assert of_run.spent["gpt"].tokens == len(endpoint.requests) * 120, "counted once"


def test_a_budget_is_shared_and_saved(tmp_path: Path) -> None:
    limits = {"budget_tokens": 1000, "budget_usd": 1.0}
    first = budgets(tmp_path, 4, **limits)
    assert json.loads(first.quotas()["gpt"]) == {"tokens": 250, "usd": 0.25, "number": 1}
    first.count([Spent("gpt", Usage(100, 20, 0.1)), Spent("gpt", Usage(100, 10, 0.3)), Spent("random", Usage(9))])
    assert (first.spent["gpt"].tokens, first.spent["gpt"].cost) == (230, pytest.approx(0.4))
    assert first.metrics() == {"opponents/gpt/tokens": 230.0, "opponents/gpt/usd": pytest.approx(0.4)}
    checkpoint = first.state_dict()
    first.count([Spent("gpt", Usage(100))])
    for state, file in ((checkpoint, False), ({}, True)):
        if not file:
            (tmp_path / "elsewhere").mkdir()
        resumed = budgets(tmp_path if file else tmp_path / "elsewhere", 4, **limits)
        resumed.load_state_dict(state)
        assert resumed.spent["gpt"].tokens == (330 if file else 230), "a kill loses nothing"
        resumed.count([Spent("gpt", Usage(770, 0, 0.1))])
        assert resumed.reached("gpt") and not first.reached("gpt") and not resumed.reached("random")
    unlimited = {"tokens": None, "usd": None, "number": 1}
    assert json.loads(budgets(tmp_path, 1).quotas()["gpt"]) == unlimited


def test_what_an_endpoint_cost_is_known_after_a_start_without_it(tmp_path: Path) -> None:
    claude, before = asdict(Usage(70, 10)), asdict(Usage(60))
    (tmp_path / "spent.json").write_text(json.dumps({"claude": claude}))
    without = budgets(tmp_path, 1)
    without.load_state_dict({"claude": before})
    without.count([Spent("gpt", Usage(9))])
    assert without.state_dict() == {"claude": claude, "gpt": asdict(Usage(9))}
    assert read_costs(tmp_path / "spent.json") == {"claude": Usage(70, 10), "gpt": Usage(9)}
    assert without.metrics().keys() == {"opponents/gpt/tokens", "opponents/gpt/usd"}
    nobody = Budgets((), 1, tmp_path / "spent.json")
    nobody.load_state_dict({"claude": before})
    assert nobody.state_dict() == {"claude": before}


def test_something_is_left_for_each_process_until_a_budget_is_reached(tmp_path: Path) -> None:
    nearly = budgets(tmp_path, 8, budget_tokens=1000)
    nearly.count([Spent("gpt", Usage(995, 0))])
    assert json.loads(nearly.quotas()["gpt"])["tokens"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"gpt": 5}', '{"gpt": {"cost": "5"}}', "\udc80"])
def test_damaged_costs_are_one_line(tmp_path: Path, text: str) -> None:
    """To count them as nothing would spend the budget again."""
    (tmp_path / "spent.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"spent\.json: is damaged, .*; mend it, or remove it, and"):
        budgets(tmp_path, 1).load_state_dict({})
