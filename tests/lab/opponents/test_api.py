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
from recipe.spiral.lab.opponents.api.endpoint_player import ApiPlayer
from recipe.spiral.lab.opponents.api.endpoint_settings import ApiSettings
from recipe.spiral.lab.opponents.api.usage import Usage
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import PlayerFailure, Response
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.lab.opponents.asking import KEY, Serve, player, position, respond, run
from tests.lab.opponents.endpoint import Behaviour, Endpoint, completion, drip, error, good, send

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


def test_what_is_left_to_the_endpoint_is_not_sent(serve: Serve) -> None:
    endpoint = serve(good())
    respond(player(endpoint, temperature=None, max_tokens=None, send_seed=False, template="llama_instruct"))
    (body,) = endpoint.requests
    assert {*body} == {"model", "messages", "stream"}
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


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
    "bytes": (send(200, b"\xff\xfe\x00"), "the answer is no JSON"),
    "nothing": (send(200, b""), "the answer is no JSON"),
    "deep": (send(200, b"[" * 100_000), "the answer is no JSON"),
    "a list": (send(200, b"[1]"), "the answer is no JSON object"),
    "null": (send(200, b"null"), "the answer is no JSON object"),
    "a stream": (send(200, b'data: {"choices": []}\n\n', content_type="text/event-stream"), "the answer is no JSON"),
    "no choices": (good({}), "the answer has no choices"),
    "empty choices": (good(completion(choices=[])), "the answer has no choices"),
    "odd choices": (good(completion(choices={"0": 1})), "the answer has no choices"),
    "a number for a choice": (good(completion(choices=[7])), "the answer has no text"),
    "no message": (good(completion(choices=[{"message": "hello", "finish_reason": "length"}])), "has no text"),
    "null content": (good(completion(None)), "the answer has no text"),
    "content of another type": (good(completion([{"type": "text", "text": "[4]"}])), "the answer has no text"),
    "blank content": (good(completion(" \n")), "the answer's text is empty"),
    "an error in a choice": (good(completion(choices=[{"error": {"message": "upstream"}}])), "broke off with an error"),
    "an error's fields alone": (says(200, {"code": "403", "msg": "not for you"}), "no choices: .*not for you"),
    "broken off": (send(200, b'{"choices": [', length=5000), "RemoteProtocolError"),
    "500": (error(500), "HTTP 500"),
    **{
        charset: (error(500, content_type=f"application/json; charset={charset}"), "HTTP 500: it failed")
        for charset in ("hex", "nobodys", "undefined", "utf-16")
    },
    "overloaded": (error(529), "HTTP 529"),
    "too many": (error(429, Retry_After="0"), "HTTP 429"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_answer_voids_the_game_after_some_tries(serve: Serve, kind: str) -> None:
    behaviour, reason = BAD[kind]
    endpoint = serve(behaviour)
    with pytest.raises(PlayerFailure, match=rf"some/model: .*{reason}.*; after 3 requests"):
        respond(player(endpoint))
    assert len(endpoint.requests) == 3


def test_what_passes_does_no_harm(serve: Serve) -> None:
    """Each kind of bad answer twice, then a good one: the same question is asked three times, and answered."""
    endpoint = serve(*(answer for behaviour, _ in BAD.values() for answer in (behaviour, behaviour, good())))
    who = player(endpoint)

    async def main() -> list[Response]:
        return [await who.respond(position(index)) for index in range(len(BAD))]

    assert {response.text for response in run(main())} == {"I take it. \\boxed{[4]}"}
    seeds = [body["seed"] for body in endpoint.requests]
    assert seeds == [seed for seed in dict.fromkeys(seeds) for _ in range(3)]
    assert len({*seeds}) == len(BAD)


def test_a_wrong_request_is_not_repeated(serve: Serve) -> None:
    endpoint = serve(error(400, "the prompt\x1b[2J\u202e is too long"))
    with pytest.raises(PlayerFailure, match=r"HTTP 400: .*the prompt \[2J is too long"):  # a terminal obeys none of it
        respond(player(endpoint))
    assert len(endpoint.requests) == 1


MOVED = "it has moved, and redirects are not followed"
REFUSALS = [
    (error(401, "no"), "401, the key was refused"),
    (error(403, "no"), "403, access was refused"),
    (error(404, "no"), "404, there is no such model or address"),
    *((send(status, b"", Location="/v2"), f"{status}, {MOVED}") for status in (301, 302, 307, 308)),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_a_refusal_fails_one_game_and_says_what_to_check(serve: Serve, number: int) -> None:
    refusal, reason = REFUSALS[number]
    endpoint = serve(refusal, good())
    who = player(endpoint)
    with pytest.raises(PlayerFailure, match=rf"answers {reason}: check api_key_env=SOME_KEY, model=some/model") as info:
        respond(who)
    assert info.value.again and len(endpoint.requests) == 1
    assert respond(who).text


PLAN = "You exceeded your current quota, please check your plan and billing details."
SPENT = {"message": PLAN, "code": "insufficient_quota"}
#: What nobody answers before somebody pays, and what the endpoint says of it.
UNPAID: dict[str, tuple[Behaviour, str]] = {
    "OpenAI": (says(429, {"error": {**SPENT, "type": "insufficient_quota"}}), PLAN),
    "in a success": (says(200, {"error": SPENT}), PLAN),
    "without a code": (says(429, {"error": {"message": PLAN, "type": None}}), PLAN),
    "a code alone": (says(429, {"error": {"code": "billing_hard_limit_reached"}}), "billing_hard_limit_reached"),
    "402": (error(402, "Top up, please."), "Top up, please."),
    "402 in a success": (says(200, {"error": {"code": 402, "message": "Top up, please."}}), "Top up, please."),
    "credits": (error(400, "Your credit balance is too low to access the API."), "credit balance is too low"),
    "a text": (says(403, {"error": "Insufficient Balance"}), "Insufficient Balance"),
}


@pytest.mark.parametrize("kind", UNPAID)
def test_a_spent_quota_is_not_asked_for_again(serve: Serve, kind: str) -> None:
    behaviour, words = UNPAID[kind]
    endpoint = serve(behaviour)
    with pytest.raises(Unpaid, match=re.escape(words)) as info:
        respond(player(endpoint))
    assert not info.value.again and len(endpoint.requests) == 1


#: Errors in the body of a success: what it says, and whether it "may pass" or is "wrong".
INSIDE: dict[str, tuple[object, str, str]] = {
    "unauthorised": ({"error": {"code": 401, "message": "No auth"}}, "401, the key was refused", "wrong"),
    "a code": ({"error": {"code": 400, "message": "too long"}}, "HTTP 400: too long", "wrong"),
    "no status": ({"error": {"code": 7, "message": "odd"}}, "odd", "may pass"),
    "a text": ({"error": "The model is loading"}, "The model is loading", "may pass"),
    "a list": ({"error": [{"message": "listed"}]}, "listed", "may pass"),
    "no words": ({"error": {"code": None, "param": 7}}, '"param": 7', "may pass"),
    "a limit": ({"error": {"code": 429, "message": f"{PLAN} Please retry in 5s."}}, "retry in 5s", "may pass"),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_an_error_in_the_body_of_a_success_is_one(serve: Serve, kind: str) -> None:
    body, words, what = INSIDE[kind]
    endpoint = serve(says(200, body))
    who = player(endpoint)
    with pytest.raises(PlayerFailure, match=re.escape(words)):
        respond(who)
    assert len(endpoint.requests) == (3 if what == "may pass" else 1)
    assert who.costs.of(who.name) == Usage(), "nobody charges for errors"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_an_endpoint_says_reaches_people(serve: Serve, status: int) -> None:
    page = b"<html><head><title>Bad day</title></head><body>of the\n<b>gateway</b></body></html>"
    with pytest.raises(PlayerFailure, match=rf"HTTP {status}: Bad day of the gateway; after 3 requests"):
        respond(player(serve(send(status, page, content_type="text/html"))))


def test_nobody_there() -> None:
    endpoint = Endpoint(good())
    endpoint._server.socket.close()
    who = player(endpoint)
    with pytest.raises(PlayerFailure, match=r"ConnectError: .* failed; after 3 requests"):
        respond(who)
    assert who.costs.of(who.name) == Usage(), "nothing was sent"


SLOW = {
    "hangs": good(after=60.0),
    "drips": drip(pieces=3000, pause=0.02),
    "drips blanks": drip(pieces=3000, pause=0.02, piece=b" "),
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
    "an error that does": send(500, BOMB, content_encoding="gzip, gzip"),
}


@pytest.mark.parametrize("kind", LONG)
def test_no_answer_fills_the_memory(serve: Serve, kind: str) -> None:
    with pytest.raises(PlayerFailure, match=r"the answer has more than \d+ bytes; after 3 requests"):
        respond(player(serve(LONG[kind]), timeout=20.0, total_timeout=60.0))


def test_what_the_library_does_not_expect_voids_one_game(serve: Serve) -> None:
    with pytest.raises(PlayerFailure, match=r"ValueError: .*JSON"):
        respond(player(serve(good()), extra_body={"top_p": float("nan")}))


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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(serve: Serve, status: int) -> None:
    """They would take the key, and the run's requests, wherever the endpoint says."""
    elsewhere = serve(good())
    endpoint = serve(send(status, b"", Location=f"{elsewhere.url}/chat/completions"))
    with pytest.raises(PlayerFailure, match=rf"{status}"):
        respond(player(endpoint, retries=0))
    assert not elsewhere.requests and not elsewhere.redirected


@pytest.mark.parametrize(
    ("retry_after", "least"),
    [
        ("0.3", 0.3),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
    ],
)
def test_it_waits_as_long_as_it_is_asked_to(serve: Serve, retry_after: str, least: float) -> None:
    endpoint = serve(error(429, Retry_After=retry_after), good())
    who, begin = player(endpoint), time.monotonic()
    respond(who)
    assert least <= time.monotonic() - begin < 20


def test_pauses_grow_and_differ(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds >= 0.25:  # other sleeps are the library's
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("recipe.spiral.lab.opponents.api.endpoint_client.asyncio.sleep", note)
    for index in (0, 1, 0):
        with pytest.raises(PlayerFailure):
            respond(player(serve(error(503)), retries=6, backoff=0.5, max_backoff=4, total_timeout=90), position(index))
    first, second, again = pauses[:6], pauses[6:12], pauses[12:]
    for pause, longest in zip(first, (0.5, 1, 2, 4, 4, 4), strict=True):
        assert longest / 2 <= pause <= longest
    assert first == again != second


def test_no_more_requests_than_allowed_are_open_at_a_time(serve: Serve) -> None:
    endpoint = serve(good(after=0.05))
    who = player(endpoint, max_concurrency=4)

    async def all_at_once() -> list[Response]:
        return await asyncio.gather(*(who.respond(position(index)) for index in range(24)))

    assert len(run(all_at_once())) == 24
    assert endpoint.most == 4
    assert who.costs.of(who.name) == Usage(2400, 480)


def test_waiting_for_a_place_is_no_failure(serve: Serve) -> None:
    """Ten responses of 0.2 s behind one another, each with a limit of 1.5 s."""
    who = player(serve(good(after=0.2)), max_concurrency=1, timeout=1.5, total_timeout=1.5)

    async def all_at_once() -> list[Response]:
        return await asyncio.gather(*(who.respond(position(index)) for index in range(10)))

    assert len(run(all_at_once())) == 10


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


def test_a_hanging_endpoint_costs_its_own_games_only(serve: Serve) -> None:
    dead = player(serve(good(after=5.0)), timeout=2, total_timeout=4, max_concurrency=2)
    alive = player(serve(good(after=0.01)))
    finished: list[str] = []

    async def game(who: ApiPlayer | RandomPlayer, name: str) -> None:
        try:
            for turn in range(4):
                await who.respond(position(0, turn))
            finished.append(name)
        except PlayerFailure:
            finished.append(f"{name} failed")

    async def main() -> None:
        games = [game(dead, "dead") for _ in range(2)] + [game(alive, "alive"), game(RandomPlayer(), "random")]
        await asyncio.gather(*games)

    run(main())
    assert finished == ["random", "alive", "dead failed", "dead failed"]


def test_a_cancelled_response_leaves_its_place(serve: Serve) -> None:
    endpoint = serve(good(after=0.5), good())
    who = player(endpoint, max_concurrency=1)

    async def main() -> Response:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(who.respond(position()), 0.1)
        return await who.respond(position())

    assert run(main()).text


def test_cookies_are_not_kept(serve: Serve) -> None:
    """One that is no ASCII would fail each request from there on."""
    endpoint = serve(send(200, json.dumps(completion()).encode(), set_cookie="a=ä"))
    who = player(endpoint)

    async def main() -> list[Response]:
        return [await who.respond(position(index)) for index in range(2)]

    assert len(run(main())) == 2
    assert not any("cookie" in headers for headers in endpoint.headers)


def test_no_other_key_of_the_environment_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Bearer another-endpoints-key")
    for variable, sent in (("SOME_KEY", KEY), (None, "none")):
        endpoint = serve(good())
        respond(player(endpoint, api_key_env=variable))
        assert endpoint.headers[0]["authorization"] == f"Bearer {sent}"


LEAKS: list[Behaviour] = [
    error(401, f"Incorrect API key provided: {KEY}."),
    error(400, f"{'x' * 390}{KEY} {KEY}"),
    error(500, f"Authorization: Bearer {KEY}"),
    send(404, f"<html>{KEY}</html>".encode()),
    send(200, f"{KEY}: no JSON".encode()),
    send(200, f'{{"choices": "{KEY}"}}'.encode(), length=9000),
    send(200, f'{{"choices": "{KEY}"}}'.encode()),
    send(200, f'{{"error": "Incorrect API key provided: {KEY}."}}'.encode()),
    send(500, b" " * (4096 - 20) + KEY.encode()),
    send(500, b" " * (2**16 - 20) + KEY.encode()),
    send(301, b"", Location=f"/v2?key={KEY}"),
    send(200, b"{}", X_Key=KEY),
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


@pytest.mark.parametrize("quoted", [KEY, "another-key-in-the-body", "a-key-1-in-JSON"])
def test_an_answer_that_quotes_a_key_is_kept_without_it(serve: Serve, quoted: str) -> None:
    body = {"headers": [{"x-api-key": "another-key-in-the-body"}], "metadata": '{"token": "a-key-1-in-JSON"}'}
    who = player(serve(good(completion(f"{quoted} \\boxed{{[4]}}"))), extra_body=body)
    assert respond(who).text == "*** \\boxed{[4]}"
    with pytest.raises(PlayerFailure, match=r"wrong key \*\*\*$"):
        respond(player(serve(error(400, f"wrong key {quoted}")), extra_body=body))


def test_a_key_of_eight_characters_is_taken_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "k3y-0123")
    assert respond(player(serve(good(completion("k3y-0123 [4]"))))).text == "*** [4]"


def test_no_half_of_a_key_is_left_where_a_long_text_is_cut(serve: Serve) -> None:
    who = player(serve(good(completion(""))), max_tokens=1)
    long = "x" * (who.settings.longest_text - 12) + KEY
    text = respond(player(serve(good(completion(long))), max_tokens=1)).text
    assert text.endswith("x***")


def test_a_text_that_no_file_takes_is_mended(serve: Serve) -> None:
    body = json.dumps(completion("half \\ud800 \\boxed{[4]}")).replace("\\\\ud800", "\\ud800").encode()
    assert respond(player(serve(send(200, body)))).text == "half ? \\boxed{[4]}"


def test_one_player_serves_several_event_loops(serve: Serve) -> None:
    who = player(serve(good()))
    for _ in range(3):
        assert run(who.respond(position())).text
    assert who.costs.of(who.name).tokens == 360


def test_an_endpoint_may_want_no_key(serve: Serve) -> None:
    endpoint = serve(good())
    who = ApiPlayer(ApiSettings(model="m", base_url=endpoint.url, api_key_env=None))
    assert respond(who).text
    assert KEY not in str(endpoint.headers)
