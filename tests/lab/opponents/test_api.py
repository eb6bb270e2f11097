"""A player behind an endpoint: what it asks, what it makes of every kind of bad answer, what it may spend, and what it
never does."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from omegaconf import OmegaConf

from recipe.spiral import rollout
from recipe.spiral.games import make
from recipe.spiral.lab.opponents.api_costs import COSTS, Costs, Usage
from recipe.spiral.lab.opponents.api_player import ApiPlayer, NotAsked, ask_once
from recipe.spiral.lab.opponents.api_settings import ApiSettings
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import PlayerFailure, PlayerMisconfigured, RandomPlayer, Response
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.lab.evaluation.made import Fakes, evaluation
from tests.lab.opponents.endpoint import (
    KEY,
    Behaviour,
    Endpoint,
    Serve,
    completion,
    drip,
    error,
    good,
    player,
    position,
    respond,
    send,
    settings,
)

pytest.importorskip("openai", reason="needs the extra 'api'")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts endpoints."""
    with ExitStack() as stack:
        yield lambda *behaviours: stack.enter_context(Endpoint(*behaviours).serving())


def test_it_asks_with_the_observation_alone(serve: Serve) -> None:
    endpoint = serve(good())
    response = respond(player(endpoint, temperature=0.3, max_tokens=77, extra_body={"top_p": 0.9, "more": {"a": [1]}}))
    (body,) = endpoint.requests
    assert response == Response("I take it. \\boxed{[4]}", usage=asdict(Usage(100, 20, None)))
    (message,) = body.pop("messages")
    assert message["role"] == "user" and "\\boxed{}" in message["content"]
    assert position().observation in message["content"]
    assert 0 <= body.pop("seed") < 2**31
    expected = {"model": "some/model", "temperature": 0.3, "max_tokens": 77, "stream": False}
    assert body == {**expected, "top_p": 0.9, "more": {"a": [1]}}
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"


def test_seeds_are_those_of_the_key(serve: Serve) -> None:
    endpoint = serve(good())
    who = player(endpoint)
    for where in (position(0, 0), position(0, 1), position(1, 0), position(0, 0)):
        respond(who, where)
    seeds = [body["seed"] for body in endpoint.requests]
    assert len({*seeds}) == 3
    assert seeds[0] == seeds[3]


def test_a_game_is_recorded_with_what_it_used(serve: Serve) -> None:
    who = player(serve(good()), price_in=2.0, price_out=10.0)
    key = GameKey("train", 3, 1, 0)
    record = asyncio.run(play(key, "TicTacToe", make("TicTacToe", 0), [who, RandomPlayer()], (1,), Rules()))
    first, second, last = record.turns  # it answers [4] once more, which is illegal then
    assert first.usage == last.usage == asdict(Usage(100, 20, (100 * 2 + 20 * 10) / 1e6))
    assert second.usage is None
    assert (first.response, first.verdict, last.verdict) == ("I take it. \\boxed{[4]}", "legal", "illegal")
    assert msgspec.json.decode(record.to_json(), type=GameRecord) == record
    assert who.costs.of(who.name) == (240, pytest.approx(2 * 0.0004))


def test_a_response_that_the_limit_cut_off_is_one(serve: Serve) -> None:
    """Also where nothing is left of it: hidden reasoning has taken everything."""
    for content, text in (("so the", "so the"), (None, ""), ("", "")):
        assert respond(player(serve(good(completion(content, "length"))))) == Response(
            text, truncated=True, usage=asdict(Usage(100, 20))
        )


#: What is no answer, and a word of what is said then.
BAD: dict[str, tuple[Behaviour, str]] = {
    "a page": (send(200, b"<html>Welcome</html>", content_type="text/html"), "Welcome"),
    "a list": (send(200, b"[1]"), ""),
    "no choices": (good({}), ""),
    "null content": (good(completion(None)), ""),
    "an error": (good({"error": {"code": 401, "message": "No auth"}}), "No auth"),
    "broken off": (send(200, b'{"choices": [', length=5000), ""),
    "500": (error(500), "HTTP 500: it failed"),
    "wrong": (error(400, "the prompt\x1b[2J is too long"), r"the prompt\\x1b\[2J is too long"),
    "a wrong key": (error(401, "no"), "HTTP 401: no; check api_key_env=SOME_KEY"),
    "a year": (error(429, Retry_After=str(365 * 86400)), "HTTP 429"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_answer_voids_the_game(serve: Serve, kind: str) -> None:
    behaviour, reason = BAD[kind]
    with pytest.raises(PlayerFailure, match=reason or None) as info:
        respond(player(serve(behaviour)))
    assert info.value.again and len(str(info.value)) < 450 and "\n" not in str(info.value)


def test_what_passes_does_no_harm(serve: Serve) -> None:
    endpoint = serve(error(503), good())
    assert respond(player(endpoint, retries=1)).text
    first, second = (body["seed"] for body in endpoint.requests)
    assert first == second


@pytest.mark.parametrize(
    "behaviour", [error(402, "pay"), send(429, b'{"error": {"message": "m", "code": "insufficient_quota"}}')]
)
def test_a_spent_quota_is_not_asked_for_again(serve: Serve, behaviour: Behaviour) -> None:
    endpoint = serve(behaviour)
    who = player(endpoint)
    for _ in range(2):
        with pytest.raises(NotAsked) as info:
            respond(who)
        assert not info.value.again and len(endpoint.requests) == 1


@pytest.mark.parametrize("behaviour", [good(after=60.0), drip(3000, 0.02), error(500), error(429, Retry_After="60")])
def test_a_response_ends_in_its_time(serve: Serve, behaviour: Behaviour) -> None:
    begin, who = time.monotonic(), player(serve(behaviour), total_timeout=0.3, retries=1000)
    with pytest.raises(PlayerFailure, match="no answer within") as info:
        respond(who)
    assert time.monotonic() - begin < 20 and not info.value.again
    assert who.costs.of(who.name)[0] > 50, "what was asked in vain is counted by its prompt"


def test_a_text_longer_than_was_asked_for_is_cut(serve: Serve) -> None:
    """Some endpoints do not know ``max_tokens``: a game is not to read, and to record, megabytes."""
    response = respond(player(serve(good(completion("x" * 5000))), max_tokens=77))
    assert (response.text, response.truncated) == ("x" * 16 * 77, True)


def test_redirects_are_not_followed(serve: Serve) -> None:
    """They would take the key, and the run's requests, wherever the endpoint says."""
    elsewhere = serve(good())
    for status in (301, 302, 303, 307, 308):
        with pytest.raises(PlayerFailure, match=f"HTTP {status}"):
            respond(player(serve(send(status, b"", Location=f"{elsewhere.url}/chat/completions"))))
    assert not elsewhere.requests and not elsewhere.redirected


def test_no_more_requests_than_allowed_are_open_at_a_time(serve: Serve) -> None:
    endpoint = serve(good(after=0.05))
    who = player(endpoint, max_concurrency=4)

    async def all_at_once() -> list[Response]:
        return await asyncio.gather(*(who.respond(position(index)) for index in range(24)))

    assert len(asyncio.run(all_at_once())) == 24
    assert endpoint.most == 4
    assert who.costs.of(who.name) == (2880, 0.0)


def test_an_endpoint_that_never_answers_is_left_alone(serve: Serve) -> None:
    endpoint = serve(error(400), error(400), good(), *(error(400) for _ in range(6)))
    who = player(endpoint, max_concurrency=2)
    for _ in range(2):
        with pytest.raises(PlayerFailure):
            respond(who)
    respond(who)
    for _ in range(4):
        with pytest.raises(PlayerFailure, match="HTTP 400"):
            respond(who)
    with pytest.raises(NotAsked, match="HTTP 400"):
        respond(who)
    assert len(endpoint.requests) == 7


def test_another_services_headers_are_not_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Bearer another-endpoints-key\nX-Team: another-team")
    monkeypatch.setenv("OPENAI_ORG_ID", "another-organisation")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "another-project")
    for variable, sent in (("SOME_KEY", KEY), (None, "none")):
        endpoint = serve(good())
        respond(player(endpoint, api_key_env=variable))
        assert endpoint.headers[0]["authorization"] == f"Bearer {sent}"
        assert "another" not in str(endpoint.headers) and KEY not in str(endpoint.headers).replace(sent, "")


LEAKS: list[Behaviour] = [
    error(401, f"Incorrect API key provided: {KEY}."),
    send(404, f"<html>{KEY}</html>".encode()),
    send(200, f'{{"error": "Incorrect API key provided: {KEY}."}}'.encode()),
    send(301, b"", Location=f"/v2?key={KEY}"),
    good(after=0.5),
]


@pytest.mark.parametrize("number", range(len(LEAKS)))
def test_the_key_is_nowhere(serve: Serve, caplog: pytest.LogCaptureFixture, number: int) -> None:
    caplog.set_level(logging.DEBUG)
    who = player(serve(LEAKS[number]), timeout=0.2)
    with pytest.raises(PlayerFailure) as info:
        respond(who)
    error: BaseException | None = info.value
    while error is not None:
        assert KEY[:12] not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    assert KEY[:12] not in f"{who!r} {who.settings!r}"
    assert KEY[:12] not in caplog.text


def test_an_answer_that_quotes_the_key_is_kept_without_it(serve: Serve) -> None:
    assert respond(player(serve(good(completion(f"{KEY} \\boxed{{[4]}}"))))).text == "*** \\boxed{[4]}"


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_key_or_a_library_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install 'openai"):
        ApiPlayer(settings("http://host/v1"))
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(PlayerMisconfigured, match="api_key_env=SOME_KEY"):
        ApiPlayer(settings("http://host/v1"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model", " "),
        ("base_url", "http://me:password@host/v1"),
        ("base_url", "http://host/v1?key=1"),
        ("api_key_env", "sk-1234"),
        ("template", "octothinker"),
        ("template", "qwen3_general"),
        ("temperature", float("nan")),
        ("max_concurrency", 0),
        ("budget_usd", 1.0),  # without prices
        ("tempersture", 1),
    ],
)
def test_settings_say_what_is_wrong_with_them(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting) as info:
        ApiSettings.from_mapping({"model": "m", setting: value})
    shown = f"{info.value} {info.value.__cause__}"  # a traceback has both
    assert "password@" not in shown and "sk-1234" not in shown


# -- before a run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (error(401, f"Incorrect API key provided: {KEY}."), "HTTP 401.*check api_key_env=SOME_KEY"),
        (error(404, "The model does not exist"), "HTTP 404"),
        (send(302, b"", location="https://elsewhere"), "HTTP 302"),
        (send(200, b"<html>Welcome</html>", content_type="text/html"), "Welcome"),
        (None, r"127\.0\.0\.1:1/v1: Connect.*check base_url"),
    ],
)
def test_what_no_game_could_mend_refuses_the_run(behaviour: Behaviour | None, why: str, serve: Serve) -> None:
    fine = serve(good())
    url = serve(behaviour).url if behaviour else "http://127.0.0.1:1/v1"
    with pytest.raises(ValueError, match=f"(?s)^opponents: gpt: .*{why}") as refused:
        ask_once({"fine": settings(fine.url), "opponents: gpt": settings(url)}, pytest.fail)
    assert "\n" not in str(refused.value) and KEY not in str(refused.value)


@pytest.mark.parametrize("behaviour", [error(503, "loading"), error(429, "rate limit"), good(after=3.0)])
def test_who_is_busy_or_slow_is_there(behaviour: Behaviour, serve: Serve) -> None:
    said, begun = list[str](), time.monotonic()
    ask_once({"opponents: gpt": settings(serve(behaviour).url, timeout=0.5)}, said.append)
    assert [line.split(": ")[1] for line in said] == ["gpt"]
    assert time.monotonic() - begun < 3


# -- what endpoints may spend: counted, estimated where it must be, and by all processes and starts together -----------


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


def test_a_budget_is_that_of_the_run(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 tokens a turn. Another process, or start, of the run goes on with what was spent."""
    endpoint = serve(good())
    place = {"kind": "api", "name": "gpt", "model": "m", "base_url": endpoint.url, "api_key_env": "SOME_KEY"}
    config = OmegaConf.create({"opponents": [{**place, "share": 0.5, "budget_tokens": 240}], "run_dir": str(tmp_path)})
    for answers in (2, 0):
        monkeypatch.setattr(rollout, "_players", {})
        who: Any = rollout.fixed_player("gpt", config)
        for _ in range(answers):
            respond(who)
        with pytest.raises(NotAsked, match="budget_tokens=240"):
            respond(who)
    assert len(endpoint.requests) == 2 and Costs(tmp_path / COSTS).of("gpt") == (240, 0.0)
