"""A response that was broken off and went on: its parts are drawn with random numbers of their own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.workers.engine.resuming_client import ResumingClient
from tests.workers.engine.fakes import Streaming

ROLLOUT = SimpleNamespace(response_length=9, name="vllm")
CONFIG = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=ROLLOUT))


class Server:
    """Breaks off the first answers after some tokens; each answer is of the next version."""

    def __init__(self, *parts: tuple[int, str]) -> None:
        self.parts = list(parts)
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> TokenOutput:
        self.asked.append(request)
        tokens, reason = self.parts[len(self.asked) - 1]
        ids = [len(request["prompt_ids"]) + i for i in range(tokens)]
        version = len(self.asked)
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.1] * tokens,
            stop_reason=reason,
            extra_fields={"global_steps": version},
        )


def ask(monkeypatch: pytest.MonkeyPatch, server: Server, seed: int | None = 5) -> TokenOutput:
    client = ResumingClient(CONFIG, servers=[Streaming(server.generate)])

    async def sleep(seconds: float) -> None:
        return None

    monkeypatch.setattr("verl.workers.rollout.llm_server.asyncio.sleep", sleep)
    sampling = {"max_tokens": 9, "seed": seed, "temperature": 1.0}
    output: TokenOutput = asyncio.run(client.generate("turn", prompt_ids=[1, 2, 3], sampling_params=sampling))
    assert sampling == {"max_tokens": 9, "seed": seed, "temperature": 1.0}, "the caller's own stays as it is"
    return output


def test_each_part_has_its_own_seed_and_the_response_says_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((2, "aborted"), (0, "aborted"), (3, "completed"))
    output = ask(monkeypatch, server)
    assert output.token_ids == [3, 4, 5, 6, 7] and len(output.log_probs) == 5
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (1, 3)
    first, second, third = [request["sampling_params"]["seed"] for request in server.asked]
    assert first == 5 and second == third != first
    assert [request["sampling_params"]["max_tokens"] for request in server.asked] == [9, 7, 7]
