"""The client asks the right server, and takes no answer from the wrong weights."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.runtime.direct_client import DirectClient, DirectResumingClient
from recipe.spiral.workers.engine import game_client
from recipe.spiral.workers.engine.game_client import GameClient, WrongWeights
from recipe.spiral.workers.engine.resuming_client import ResumingClient
from tests.workers.engine.fakes import Remote, Streaming

CONFIG = OmegaConf.create({"actor_rollout_ref": {"rollout": {"full_determinism": False, "name": "vllm"}}})
#: By whether servers are asked directly, and whether responses are put together.
CLIENTS = {
    (False, False): GameClient,
    (False, True): ResumingClient,
    (True, False): DirectClient,
    (True, True): DirectResumingClient,
}


def answer(name: str | None, **fields: Any) -> TokenOutput:
    stop_reason = fields.pop("stop_reason", "completed")
    return TokenOutput(token_ids=[1, 2], stop_reason=stop_reason, extra_fields={"answered_by": name, **fields})


class Servers:
    """A policy's server and two slots, which note what they are asked."""

    def __init__(self, *answers: TokenOutput, direct: bool = False, resuming: bool = False) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        balancer = Remote(
            {
                "require_acquire_fields": list,
                "require_release_fields": list,
                "acquire_server": lambda request_id: ("policy's", self.server("policy")),
            }
        )
        handle: Any = self.server
        known: dict[str, Any] = {}
        if direct:
            handle = lambda which: Streaming(self.answering(which))  # noqa: E731
            known = {"servers": [handle("direct")]}
        slots = [handle("slot 0"), handle("slot 1")]
        self.client: Any = CLIENTS[direct, resuming](CONFIG, balancer, slots=slots, **known)
        self.client._release_server = lambda *args, **kwargs: self.asked.append(("released", {}))

    def answering(self, which: str) -> Callable[..., Awaitable[TokenOutput]]:
        async def generate(**request: Any) -> TokenOutput:
            self.asked.append((which, request))
            return self.answers.pop(0)

        return generate

    def server(self, which: str) -> Any:
        return SimpleNamespace(generate=SimpleNamespace(remote=self.answering(which)))

    def generate_as(self, name: str, slot: int | None, sampling: dict[str, Any] | None = None) -> TokenOutput:
        return asyncio.run(self.client.generate_as(name, slot, "turn-7", [5, 6], sampling or {"max_tokens": 3}))


@pytest.mark.parametrize("direct", [False, True])
def test_full_weights_are_asked_of_their_slot(direct: bool) -> None:
    servers = Servers(answer("step-10"), direct=direct)
    sampling = {"max_tokens": 3}
    assert servers.generate_as("step-10", 1, sampling).token_ids == [1, 2]
    ((which, request),) = servers.asked
    assert which == "slot 1" and (request.pop("request_id") != "turn-7") == direct
    assert request == {
        "prompt_ids": [5, 6],
        "sampling_params": {"max_tokens": 3},
        **({"whole": True} if direct else {}),
    }


def test_where_games_go_on_over_steps_a_slots_answers_may_be_broken_off() -> None:
    servers = Servers(answer("step-10"), direct=True, resuming=True)
    servers.generate_as("step-10", 1)
    assert servers.asked[0][1]["whole"] is False


@pytest.mark.parametrize("resuming", [False, True])
def test_an_adapter_is_asked_of_a_server_of_the_policy(resuming: bool) -> None:
    servers = Servers(answer("step-10"), resuming=resuming)
    servers.generate_as("step-10", None)
    (which, request), released = servers.asked
    assert (which, request["adapter"], request["prompt_ids"], released[0]) == ("policy", "step-10", [5, 6], "released")


@pytest.mark.parametrize("direct", [False, True])
def test_the_policys_own_requests_name_no_adapter(direct: bool) -> None:
    servers = Servers(answer(None, global_steps=4), direct=direct)
    output = asyncio.run(servers.client.generate("turn-7", prompt_ids=[5], sampling_params={"max_tokens": 3}))
    which, request = servers.asked[0]
    assert which == ("direct" if direct else "policy") and len(servers.asked) == (1 if direct else 2)
    given = {name: request[name] for name in ("prompt_ids", "sampling_params")}
    assert given == {"prompt_ids": [5], "sampling_params": {"max_tokens": 3}} and "adapter" not in request
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (4, 4)


@pytest.mark.parametrize("resuming", [False, True])
def test_an_adapter_may_be_asked_directly(resuming: bool) -> None:
    servers = Servers(answer("step-10"), direct=True, resuming=resuming)
    servers.generate_as("step-10", None)
    ((which, request),) = servers.asked
    assert (which, request["adapter"], request["prompt_ids"]) == ("direct", "step-10", [5, 6])


@pytest.mark.parametrize("resuming", [False, True])
def test_in_a_servers_process_nobody_else_is_asked_for_the_policys_responses(resuming: bool) -> None:
    servers = Servers(
        answer(None, global_steps=4), answer("step-10"), answer("step-10"), direct=True, resuming=resuming
    )
    client = servers.client
    assert len(client.servers) == 1
    client.stay(SimpleNamespace(answer=servers.answering("here")))
    output = asyncio.run(client.generate("turn-7", prompt_ids=[5], sampling_params={"max_tokens": 3}))
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (4, 4)
    servers.generate_as("step-10", None)
    servers.generate_as("step-10", 1)
    assert [(which, request.get("adapter")) for which, request in servers.asked] == [
        ("here", None),
        ("here", "step-10"),
        ("slot 1", None),
    ]
    assert [request["whole"] for _, request in servers.asked] == [not resuming] * 3


@pytest.mark.parametrize("slot", [0, None])
@pytest.mark.parametrize("other", ["step-20", None])
def test_other_weights_are_refused(slot: int | None, other: str | None) -> None:
    with pytest.raises(WrongWeights, match=f"step-10 was asked for a response, and {other} answered"):
        Servers(answer(other)).generate_as("step-10", slot)


def test_there_is_no_such_slot() -> None:
    with pytest.raises(RuntimeError, match="from slot 2, and there are 2"):
        Servers().generate_as("step-10", 2)


def test_an_answer_that_is_broken_off_is_asked_for_again_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_client, "PAUSE", 0.0)
    monkeypatch.setattr(game_client, "ATTEMPTS", 3)
    off = answer(None, stop_reason="aborted")
    servers = Servers(off, off, answer("step-10"))
    assert servers.generate_as("step-10", None).stop_reason == "completed"
    assert [request["sampling_params"] for which, request in servers.asked if which == "policy"] == [
        {"max_tokens": 3}
    ] * 3
    with pytest.raises(RuntimeError, match="broke off each of 3 attempts"):
        Servers(off, off, off).generate_as("step-10", 0)


def test_it_goes_into_other_processes() -> None:
    client = pickle.loads(pickle.dumps(DirectClient(CONFIG, "a handle", ["server"], ["slot"])))
    assert (client.config, client._load_balancer, client.slots) == (CONFIG, "a handle", ["slot"])
    assert (len(client._slots), client.servers) == (1, ["server"])
