"""What agent loops generate with: each request reaches whom it names, and answers of others are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.workers.engine import game_client
from recipe.spiral.workers.engine.game_client import GameClient, WrongWeights
from recipe.spiral.workers.engine.resuming_client import ResumingClient
from tests.workers.engine.fakes import Streaming

CONFIG = OmegaConf.create({"actor_rollout_ref": {"rollout": {"full_determinism": False, "name": "vllm"}}})
SAMPLING = {"max_tokens": 3}


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
    monkeypatch.setattr(game_client, "PAUSE", 0.0)
    monkeypatch.setattr(game_client, "ATTEMPTS", 3)
    off = answer(None, stop_reason="aborted")
    servers = Servers(off, off, answer("step-10"))
    assert servers.generate_as("step-10", None).stop_reason == "completed"
    assert [request["sampling_params"] for _, request in servers.asked] == [SAMPLING] * 3
    with pytest.raises(RuntimeError):
        Servers(off, off, off).generate_as("step-10", 0)
