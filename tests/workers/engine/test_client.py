"""What agent loops generate with: requests of one moment travel together, each reaches whom it names, and answers of
others are refused; a response that was broken off goes on with random numbers of its own."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.workers.engine import client as clients
from recipe.spiral.workers.engine.client import Ended, GameClient, Line, Request, ResumingClient, WrongWeights
from recipe.spiral.workers.engine.vllm import VLLMServer

CONFIG = OmegaConf.create({"actor_rollout_ref": {"rollout": {"full_determinism": False, "name": "vllm"}}})
SAMPLING = {"max_tokens": 3}


class Streaming:
    """A server's handle with ``generate_many`` as Ray streams it.

    Args:
        generate: gives the answer to one request.
        dies: whether the server ends after its first answers.
    """

    def __init__(self, generate: Callable[..., Awaitable[TokenOutput]], dies: bool = False) -> None:
        self.calls: list[int] = []
        self.dies = dies
        self._generate = generate
        self.generate_many = SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=self._stream))

    async def _stream(self, requests: Sequence[Request]) -> AsyncIterator[Awaitable[Ended]]:
        self.calls.append(len(requests))
        server: Any = SimpleNamespace(answer=self._generate)
        async for ended in VLLMServer.generate_many(server, requests):
            future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
            future.set_result(ended)
            yield future
            if self.dies:
                raise RuntimeError("the actor died")


async def echo(prompt_ids: list[int]) -> TokenOutput:
    """An odd number is an error."""
    for _ in range(prompt_ids[0] % 5):
        await asyncio.sleep(0)
    if prompt_ids[0] % 2:
        raise ValueError(f"no {prompt_ids[0]}")
    return TokenOutput(token_ids=prompt_ids)


async def ask_all(line: Line, numbers: Sequence[int]) -> list[Any]:
    asked = (line.generate({"prompt_ids": [number]}) for number in numbers)
    return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)


def test_requests_of_one_moment_are_one_call_and_each_has_its_answer_or_error() -> None:
    server = Streaming(echo)
    line: Line = pickle.loads(pickle.dumps(Line(None)))
    line.server = server
    answers = asyncio.run(ask_all(line, range(100)))
    assert [answer.token_ids for answer in answers[::2]] == [[number] for number in range(0, 100, 2)]
    assert [str(answer) for answer in answers[1::2]] == [f"no {number}" for number in range(1, 100, 2)]
    assert server.calls == [100] and line.under_way == 0


def test_a_server_that_dies_fails_what_it_has_not_answered() -> None:
    async def generate(prompt_ids: list[int]) -> TokenOutput:
        await asyncio.sleep(0 if prompt_ids == [0] else 60)
        return TokenOutput(token_ids=prompt_ids)

    first, *others = asyncio.run(ask_all(Line(Streaming(generate, dies=True)), range(3)))
    assert first.token_ids == [0]
    assert [str(other) for other in others] == ["the actor died"] * 2


# -- whom a request reaches --------------------------------------------------------------------------------------------


def answer(name: str | None, **fields: Any) -> TokenOutput:
    stop_reason = fields.pop("stop_reason", "completed")
    return TokenOutput(token_ids=[1, 2], stop_reason=stop_reason, extra_fields={"answered_by": name, **fields})


class Servers:
    """A policy's server and two slots, which note what they are asked."""

    def __init__(self, *answers: TokenOutput, client: type[GameClient] = GameClient) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        servers, slots = [self.server("policy")], [self.server("slot 0"), self.server("slot 1")]
        self.client: Any = client(CONFIG, servers=servers, slots=slots)

    def server(self, which: str) -> Streaming:
        async def generate(**request: Any) -> TokenOutput:
            self.asked.append((which, request))
            return self.answers.pop(0)

        return Streaming(generate)

    def generate_as(self, name: str, slot: int | None) -> TokenOutput:
        return asyncio.run(self.client.generate_as(name, slot, "turn-7", [5, 6], SAMPLING))


def test_the_policys_own_requests_name_no_adapter() -> None:
    servers = Servers(answer(None, global_steps=4))
    output = asyncio.run(servers.client.generate("turn-7", prompt_ids=[5], sampling_params=SAMPLING))
    ((which, request),) = servers.asked
    assert which == "policy" and request.pop("request_id")
    assert request == {"prompt_ids": [5], "sampling_params": SAMPLING, "whole": True}
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (4, 4)


@pytest.mark.parametrize("client", [GameClient, ResumingClient])
@pytest.mark.parametrize(("slot", "which", "adapter"), [(1, "slot 1", None), (None, "policy", "step-10")])
def test_an_opponent_is_asked_where_its_weights_are(
    client: type[GameClient], slot: int | None, which: str, adapter: str | None
) -> None:
    """Where games go on over steps, its answers may be broken off."""
    servers = Servers(answer("step-10"), client=client)
    assert servers.generate_as("step-10", slot).token_ids == [1, 2]
    ((asked, request),) = servers.asked
    assert (asked, request.get("adapter"), request["prompt_ids"]) == (which, adapter, [5, 6])
    assert request["whole"] is (client is GameClient)


@pytest.mark.parametrize("slot", [0, None])
@pytest.mark.parametrize("other", ["step-20", None])
def test_other_weights_are_refused(slot: int | None, other: str | None) -> None:
    with pytest.raises(WrongWeights):
        Servers(answer(other)).generate_as("step-10", slot)


def test_an_answer_that_is_broken_off_is_asked_for_again_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAUSE", 0.0)
    monkeypatch.setattr(clients, "ATTEMPTS", 3)
    off = answer(None, stop_reason="aborted")
    servers = Servers(off, off, answer("step-10"))
    assert servers.generate_as("step-10", None).stop_reason == "completed"
    assert [request["sampling_params"] for _, request in servers.asked] == [SAMPLING] * 3
    with pytest.raises(RuntimeError):
        Servers(off, off, off).generate_as("step-10", 0)


# -- responses in parts ------------------------------------------------------------------------------------------------

ROLLOUT = SimpleNamespace(response_length=9, name="vllm")
RESUMING = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=ROLLOUT))


class Updating:
    """Writes a token at each turn of the event loop, which is the version of its weights, and slowly takes new ones:
    as verl's server it breaks off what runs, and lets what comes meanwhile wait."""

    def __init__(self) -> None:
        self.version = self.running = self.broken_off = self.waited = 0
        self.open = asyncio.Event()
        self.open.set()

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **request: Any) -> TokenOutput:
        self.waited += not self.open.is_set()
        await self.open.wait()
        self.running += 1
        ids: list[int] = []
        while self.open.is_set() and len(ids) < sampling_params["max_tokens"]:
            await asyncio.sleep(0)
            ids.append(self.version)
        self.running -= 1
        complete = len(ids) == sampling_params["max_tokens"]
        self.broken_off += not complete
        reason = "completed" if complete else "aborted"
        version = {"global_steps": self.version}
        return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids), stop_reason=reason, extra_fields=version)

    async def update(self) -> None:
        self.open.clear()
        while self.running:
            await asyncio.sleep(0)
        for _ in range(20):  # long enough for those that were broken off to come again
            await asyncio.sleep(0)
        self.version += 1
        self.open.set()


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
            token_ids=ids, log_probs=[-0.1] * tokens, stop_reason=reason, extra_fields={"global_steps": version}
        )


def ask(monkeypatch: pytest.MonkeyPatch, server: Server, seed: int | None = 5) -> TokenOutput:
    client = ResumingClient(RESUMING, servers=[Streaming(server.generate)])

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


def test_a_version_that_wrote_no_token_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    output = ask(monkeypatch, Server((0, "aborted"), (2, "aborted"), (3, "completed")))
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (2, 3)


def test_a_response_in_one_part_is_verls(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((3, "completed"))
    ask(monkeypatch, server)
    assert server.asked[0]["sampling_params"]["seed"] == 5
    assert server.asked[0]["prompt_ids"] == [1, 2, 3]
    assert server.asked[0]["whole"] is False, "verl breaks off what has given its first output"
    assert None not in server.asked[0].values(), "verl's clients name pictures that there are none of"


def test_responses_that_take_longer_than_an_update_are_all_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is 9 tokens, and an update comes after every fifth turn of the event loop."""
    pauses = SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0), gather=asyncio.gather)
    monkeypatch.setattr("verl.workers.rollout.llm_server.asyncio", pauses)

    async def play() -> tuple[Updating, list[TokenOutput]]:
        server = Updating()
        client = ResumingClient(RESUMING, servers=[Streaming(server.generate)])
        sampling = {"max_tokens": 9, "seed": 5}
        asked = [client.generate(f"{n}", prompt_ids=[1] * n, sampling_params=sampling) for n in range(1, 41)]
        responses = asyncio.gather(*asked)
        while not responses.done():
            for _ in range(5):
                await asyncio.sleep(0)
            await server.update()
        return server, await responses

    server, outputs = asyncio.run(asyncio.wait_for(play(), 30))
    assert server.broken_off >= 40 and server.waited >= 40, "otherwise nothing was tried"
    for output in outputs:
        assert len(output.token_ids) == len(output.log_probs) == 9
        assert output.token_ids == sorted(output.token_ids)
        named = output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]
        assert named == (output.token_ids[0], output.token_ids[-1])
