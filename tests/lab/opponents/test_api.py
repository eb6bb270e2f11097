"""A player behind an endpoint: what it asks, what it makes of every kind of bad answer, and what it never does."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import time
from dataclasses import asdict

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.opponents.api.endpoint_client import NotAsked, Unpaid
from recipe.spiral.lab.opponents.api.usage import Usage
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import PlayerFailure, Response
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.lab.opponents.asking import KEY, Serve, player, position, respond, run
from tests.lab.opponents.endpoint import Behaviour, completion, drip, error, good, send

pytest.importorskip("openai", reason="needs the extra 'api'")


def test_it_asks_with_the_observation_alone(serve: Serve) -> None:
    endpoint = serve(good())
    response = respond(player(endpoint, temperature=0.3, max_tokens=77, extra_body={"top_p": 0.9, "more": {"a": [1]}}))
    (body,) = endpoint.requests
    assert response == Response("I take it. \\boxed{[4]}", usage=asdict(Usage(100, 20, None)))
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert position().observation in body["messages"][0]["content"]
    assert "\\boxed{}" in body["messages"][0]["content"]
    seed = body.pop("seed")
    assert 0 <= seed < 2**31
    del body["messages"]
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
    endpoint = serve(good())
    who = player(endpoint, price_in=2.0, price_out=10.0)
    key = GameKey("train", 3, 1, 0)
    record = run(play(key, "TicTacToe", make("TicTacToe", 0), [who, RandomPlayer()], (1,), Rules()))
    first, second, last = record.turns  # it answers [4] once more, which is illegal then
    assert first.usage == last.usage == asdict(Usage(100, 20, (100 * 2 + 20 * 10) / 1e6))
    assert second.usage is None
    assert (first.response, first.verdict, last.verdict) == ("I take it. \\boxed{[4]}", "legal", "illegal")
    assert GameRecord.from_dict(json.loads(record.to_json())) == record
    assert who.costs.of(who.name) == Usage(200, 40, pytest.approx(2 * 0.0004))


def test_a_response_that_the_limit_cut_off_is_one(serve: Serve) -> None:
    """Also where nothing is left of it: hidden reasoning has taken everything."""
    for content, text in (("so the", "so the"), (None, ""), ("", "")):
        assert respond(player(serve(good(completion(content, "length"))))) == Response(
            text, truncated=True, usage=asdict(Usage(100, 20))
        )


def says(status: int, body: object) -> Behaviour:
    return send(status, json.dumps(body).encode())


BAD: dict[str, tuple[Behaviour, str]] = {
    "not found there": (send(200, b"<html>Welcome</html>", content_type="text/html"), "the answer is no JSON"),
    "nothing": (send(200, b""), "the answer is no JSON"),
    "a list": (send(200, b"[1]"), "the answer is no JSON object"),
    "a stream": (send(200, b'data: {"choices": []}\n\n', content_type="text/event-stream"), "the answer is no JSON"),
    "no choices": (good({}), "the answer has no choices"),
    "null content": (good(completion(None)), "the answer has no text"),
    "an error in a choice": (good(completion(choices=[{"error": {"message": "upstream"}}])), "broke off with an error"),
    "broken off": (send(200, b'{"choices": [', length=5000), "RemoteProtocolError"),
    "500": (error(500), "HTTP 500"),
    "too many": (error(429, Retry_After="0"), "HTTP 429"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_answer_voids_the_game_after_some_tries(serve: Serve, kind: str) -> None:
    behaviour, reason = BAD[kind]
    endpoint = serve(behaviour)
    with pytest.raises(PlayerFailure, match=rf"some/model: .*{reason}.*; after 3 requests"):
        respond(player(endpoint))
    assert len(endpoint.requests) == 3


def test_a_wrong_request_is_not_repeated(serve: Serve) -> None:
    endpoint = serve(error(400, "the prompt\x1b[2J\u202e is too long"))
    with pytest.raises(PlayerFailure, match=r"HTTP 400: .*the prompt \[2J is too long"):  # a terminal obeys none of it
        respond(player(endpoint))
    assert len(endpoint.requests) == 1


PLAN = "You exceeded your current quota, please check your plan and billing details."
SPENT = {"message": PLAN, "code": "insufficient_quota"}
#: What nobody answers before somebody pays, and what the endpoint says of it.
UNPAID: dict[str, tuple[Behaviour, str]] = {
    "OpenAI": (says(429, {"error": {**SPENT, "type": "insufficient_quota"}}), PLAN),
    "in a success": (says(200, {"error": SPENT}), PLAN),
    "402": (error(402, "Top up, please."), "Top up, please."),
    "credits": (error(400, "Your credit balance is too low to access the API."), "credit balance is too low"),
}


@pytest.mark.parametrize("kind", UNPAID)
def test_a_spent_quota_is_not_asked_for_again(serve: Serve, kind: str) -> None:
    behaviour, words = UNPAID[kind]
    endpoint = serve(behaviour)
    with pytest.raises(Unpaid, match=re.escape(words)) as info:
        respond(player(endpoint))
    assert not info.value.again and len(endpoint.requests) == 1


SLOW = {
    "hangs": good(after=60.0),
    "drips": drip(pieces=3000, pause=0.02),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_request_ends_in_its_time(serve: Serve, kind: str) -> None:
    """However slowly it is answered: each piece in time is not enough."""
    endpoint = serve(SLOW[kind], good())
    begin = time.monotonic()
    who = player(endpoint, timeout=0.3)
    assert respond(who).text == "I take it. \\boxed{[4]}"
    assert time.monotonic() - begin < 20
    assert who.costs.of(who.name).estimated, "what was asked in vain is counted by its prompt"
    assert 50 < who.costs.of(who.name).prompt_tokens - 100 < 200


BOMB = gzip.compress(gzip.compress(bytes(2**27)))
LONG = {
    "no end": drip(pieces=10**9, pause=0.0, piece=b" " * 2**16),
    "unpacks to much": send(200, BOMB, content_encoding="gzip, gzip"),
}


@pytest.mark.parametrize("kind", LONG)
def test_no_answer_fills_the_memory(serve: Serve, kind: str) -> None:
    with pytest.raises(PlayerFailure, match=r"the answer has more than \d+ bytes; after 3 requests"):
        respond(player(serve(LONG[kind]), timeout=20.0, total_timeout=60.0))


@pytest.mark.parametrize("behaviour", [good(after=60.0), error(500), error(429, Retry_After="60")])
def test_a_response_ends_in_its_time(serve: Serve, behaviour: Behaviour) -> None:
    begin = time.monotonic()
    with pytest.raises(PlayerFailure, match=r"leaves no time of total_timeout=0\.5 s") as info:
        respond(player(serve(behaviour), timeout=0.2, total_timeout=0.5, retries=1000, backoff=0.05))
    assert time.monotonic() - begin < 20 and not info.value.again


def test_a_text_longer_than_was_asked_for_is_cut(serve: Serve) -> None:
    """Some endpoints do not know ``max_tokens``: a game is not to read, and to record, megabytes."""
    response = respond(player(serve(good(completion("ä" * 5000))), max_tokens=77))
    assert (response.text, response.truncated) == ("ä" * (16 * 77 // 2), True)
    other_name = {"max_tokens": None, "extra_body": {"max_completion_tokens": 77}}
    assert respond(player(serve(good(completion("x" * 5000))), **other_name)).text == "x" * 16 * 77
    assert len(respond(player(serve(good(completion("x" * 50_000))), max_tokens=None)).text) == 50_000


@pytest.mark.parametrize("status", [302, 307])
def test_redirects_are_not_followed(serve: Serve, status: int) -> None:
    """They would take the key, and the run's requests, wherever the endpoint says."""
    elsewhere = serve(good())
    endpoint = serve(send(status, b"", Location=f"{elsewhere.url}/chat/completions"))
    with pytest.raises(PlayerFailure, match=rf"{status}"):
        respond(player(endpoint, retries=0))
    assert not elsewhere.requests and not elsewhere.redirected


def test_no_more_requests_than_allowed_are_open_at_a_time(serve: Serve) -> None:
    endpoint = serve(good(after=0.05))
    who = player(endpoint, max_concurrency=4)

    async def all_at_once() -> list[Response]:
        return await asyncio.gather(*(who.respond(position(index)) for index in range(24)))

    assert len(run(all_at_once())) == 24
    assert endpoint.most == 4
    assert who.costs.of(who.name) == Usage(2400, 480)


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
    with pytest.raises(NotAsked, match=r"left alone after failures in a row, the last: .*HTTP 400"):
        respond(who)
    assert len(endpoint.requests) == 7


def test_no_other_key_of_the_environment_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Bearer another-endpoints-key")
    for variable, sent in (("SOME_KEY", KEY), (None, "none")):
        endpoint = serve(good())
        respond(player(endpoint, api_key_env=variable))
        assert endpoint.headers[0]["authorization"] == f"Bearer {sent}"


LEAKS: list[Behaviour] = [
    error(401, f"Incorrect API key provided: {KEY}."),
    error(500, f"Authorization: Bearer {KEY}"),
    send(200, f"{KEY}: no JSON".encode()),
    send(200, f'{{"choices": "{KEY}"}}'.encode()),
    send(500, b" " * (2**16 - 20) + KEY.encode()),
    send(301, b"", Location=f"/v2?key={KEY}"),
    error(429, f"insufficient quota of {KEY}"),
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
    assert len(str(info.value)) < 450
    assert KEY[:12] not in f"{who!r} {who.settings!r} {who} {vars(who)!r}"
    assert KEY[:12] not in caplog.text


def test_one_player_serves_several_event_loops(serve: Serve) -> None:
    who = player(serve(good()))
    for _ in range(3):
        assert run(who.respond(position())).text
    assert who.costs.of(who.name).tokens == 360
