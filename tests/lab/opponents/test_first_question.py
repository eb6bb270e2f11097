"""What an endpoint is asked before a run, and which answers refuse it."""

from __future__ import annotations

import json
import re
import time

import pytest

from recipe.spiral.lab.opponents.api.endpoint_settings import ApiSettings
from recipe.spiral.lab.opponents.api.first_question import ask_once
from tests.lab.opponents.asking import KEY, Serve
from tests.lab.opponents.endpoint import Behaviour, error, good, send

pytest.importorskip("openai", reason="needs the extra 'api'")


def settings(url: str, **more: object) -> ApiSettings:
    return ApiSettings.from_mapping({"model": "some/model", "base_url": url, "api_key_env": "SOME_KEY", **more})


def test_it_asks_what_a_game_would(serve: Serve) -> None:
    endpoint, said = serve(good()), list[str]()
    ask_once({"opponents: gpt": settings(endpoint.url, max_tokens=77, extra_body={"top_p": 0.9})}, said.append)
    (body,) = endpoint.requests
    assert (body["model"], body["max_tokens"], body["top_p"], said) == ("some/model", 77, 0.9, [])
    assert "\\boxed{}" in body["messages"][0]["content"]
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"


def refusal(behaviour: Behaviour, serve: Serve) -> str:
    endpoint = serve(behaviour)
    with pytest.raises(ValueError) as refused:
        ask_once({"fine": settings(serve(good()).url), "opponents: gpt": settings(endpoint.url)}, pytest.fail)
    assert len(endpoint.requests) == 1
    return str(refused.value)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (error(401, f"Incorrect API key provided: {KEY}."), "HTTP 401.*check api_key_env=SOME_KEY"),
        (error(404, "The model does not exist"), "HTTP 404"),
        (error(400, "some/model is not a valid model ID"), "HTTP 400: some/model is not a valid model ID"),
        (error(402, "insufficient credit"), "HTTP 402: insufficient credit"),
        (send(302, b"", location="https://elsewhere"), "HTTP 302"),
        (send(200, b"<html>Welcome</html>", content_type="text/html"), "Welcome"),
        (send(200, json.dumps({"error": {"code": 401, "message": KEY}}).encode()), "401"),
    ],
)
def test_what_no_game_could_mend_refuses_the_run(behaviour: Behaviour, why: str, serve: Serve) -> None:
    said = refusal(behaviour, serve)
    assert said.startswith("opponents: gpt: ") and "\n" not in said and KEY not in said
    assert re.search(why, said), said


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"])
def test_an_address_where_nobody_is_refuses_the_run(url: str) -> None:
    with pytest.raises(ValueError, match=rf"^opponents: gpt: some/model: {url}: Connect.*; check base_url"):
        ask_once({"opponents: gpt": settings(url)})


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (error(503, "loading the model"), "HTTP 503: loading the model"),
        (error(429, "rate limit"), "HTTP 429: rate limit"),
        (good(after=3.0), "no answer within 0.5 s"),
    ],
)
def test_who_is_busy_or_slow_is_there(behaviour: Behaviour, why: str, serve: Serve) -> None:
    said, begun = list[str](), time.monotonic()
    ask_once({"opponents: gpt": settings(serve(behaviour).url, timeout=0.5)}, said.append)
    assert said == [f"opponents: gpt: some/model: {why}; the run goes on, and asks it again in its games"]
    assert time.monotonic() - begun < 3
