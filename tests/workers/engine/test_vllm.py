"""Our server between verl's and vLLM: limits of LoRA, adapters by name, and the policy's own requests untouched."""

from __future__ import annotations

import asyncio
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from recipe.spiral.players.seats import BASE
from recipe.spiral.processes.engine_failure import RUN_DIR, EngineFailure, Printed
from recipe.spiral.workers.engine import opponent_engines
from recipe.spiral.workers.engine.adapters import AdapterError
from recipe.spiral.workers.engine.opponent_engines import AdapterEngine
from recipe.spiral.workers.engine.vllm import VLLMServer
from tests.workers.engine.fakes import Engine


@pytest.fixture(autouse=True)
def verls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """verl's server, as far as ours calls it; gives what was called."""
    called: list[Any] = []

    async def run_server(self: Any, args: Namespace) -> None:
        called.append(vars(args).copy())
        self.engine = Engine()
        self.engine.loras.add(123)

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        lora = None
        if self.lora_as_adapter and 123 in await self.engine.list_loras():
            lora = SimpleNamespace(lora_name="123", lora_int_id=123)
        async for output in self.engine.generate({"prompt_token_ids": prompt_ids}, lora_request=lora):
            last = output
        return TokenOutput(token_ids=[1], extra_fields={"played": last.adapter})

    async def wake_up(self: Any, tags: list[str] | None = None) -> None:
        called.append(("woken", tags))

    async def resume_kv_cache(self: Any) -> None:
        called.append(("resumed", self.config.free_cache_engine))

    for method in (run_server, generate, wake_up, resume_kv_cache):
        monkeypatch.setattr(vLLMHttpServer, method.__name__, method)
    return called


def server(lora_rank: int = 8, merge: bool = False, **settings: Any) -> Any:
    made = object.__new__(VLLMServer)
    made.config = SimpleNamespace(engine_kwargs={"vllm": settings})
    made.model_config = SimpleNamespace(lora_rank=lora_rank, lora={"merge": merge})
    return made


def args(**limits: Any) -> Namespace:
    return Namespace(**{"max_loras": 1, "max_lora_rank": 8, "max_cpu_loras": None, **limits})


def test_the_configs_limits_of_lora_count(verls: list[Any]) -> None:
    made = server(max_loras=3, max_lora_rank=16)
    asyncio.run(made.run_server(args(max_cpu_loras=5)))
    assert verls == [{"max_loras": 3, "max_lora_rank": 16, "max_cpu_loras": 5}]
    assert made.adapters._room == 4
    asyncio.run(server().run_server(args()))
    asyncio.run(server(max_lora_rank=1).run_server(args()))
    assert verls[1] == verls[2] == vars(args()), "verl's own, not less"


@pytest.mark.parametrize("settings", [{"lora_rank": 0}, {"merge": True}])
def test_without_adapters_it_is_verls(verls: list[Any], settings: dict[str, Any]) -> None:
    async def play() -> None:
        made = server(**settings, max_loras=3)
        await made.run_server(args())
        assert "answered_by" not in (await made.generate([1], {}, "r")).extra_fields
        for call in (made.load_adapter("a", "/a"), made.list_adapters(), made.generate([1], {}, "r", adapter=BASE)):
            with pytest.raises(AdapterError, match="takes no adapters"):
                await call
        await made.wake_up()

    asyncio.run(play())
    assert verls == [vars(args()), ("woken", None)]


def test_requests_with_and_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")

    async def play() -> None:
        made = server(max_loras=2)
        await made.run_server(args())
        await made.load_adapter("a", str(tmp_path))
        assert await made.list_adapters() == ["a"]
        asked = [None, "a", BASE] * 3
        outputs = await asyncio.gather(*[made.generate([1], {}, "r", adapter=name) for name in asked])
        assert [output.extra_fields.get("answered_by") for output in outputs] == asked
        assert [output.extra_fields["played"] for output in outputs] == ["123", "a#1000", None] * 3
        await made.unload_adapter("a")
        with pytest.raises(AdapterError, match="adapter a: not loaded"):
            await made.generate([1], {}, "r", adapter="a")

    asyncio.run(play())


@pytest.mark.parametrize(("tags", "again"), [(None, True), (["weights"], True), (["kv_cache"], False)])
def test_adapters_are_loaded_again_when_weights_wake(tmp_path: Path, tags: list[str] | None, again: bool) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")

    async def play() -> None:
        made = server(max_loras=2)
        await made.run_server(args())
        await made.load_adapter("a", str(tmp_path))
        made.engine.loras.clear()
        await made.wake_up(tags)
        assert made.engine.loras == ({1000} if again else set())

    asyncio.run(play())


@pytest.mark.parametrize("sleeps", [True, False])
def test_adapters_are_loaded_again_after_a_sync_from_other_devices(tmp_path: Path, sleeps: bool) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")

    async def play() -> None:
        made = server(max_loras=2)
        made.config.free_cache_engine = sleeps
        await made.run_server(args())
        await made.load_adapter("a", str(tmp_path))
        made.engine.loras.clear()
        await made.resume_kv_cache()
        assert made.engine.loras == ({1000} if sleeps else set())

    asyncio.run(play())


class Handles:
    """A server behind Ray: its methods run when their references are asked for."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *args: getattr(self._made, name)(*args))


def test_a_member_may_leave_the_pool_while_the_policys_servers_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the trainer does it: hold, play, put the policy to sleep, take the adapters out, remove a folder, wake up."""
    folders = {name: tmp_path / name for name in ("a", "b", "c")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "adapter_config.json").write_text("{}")
    made = [server(max_loras=3), server(max_loras=3)]
    with asyncio.Runner() as runner:
        monkeypatch.setattr(
            opponent_engines, "ray", SimpleNamespace(get=lambda calls, timeout: [runner.run(call) for call in calls])
        )

        def play(*names: str) -> None:
            assert opponents.load({name: folders.get(name, tmp_path) for name in names}) == dict.fromkeys(names, ())
            for one in made:
                for name in names:
                    output = runner.run(one.generate([1], {}, "r", adapter=name))
                    assert output.extra_fields["answered_by"] == name

        for one in made:
            runner.run(one.run_server(args()))
        opponents = AdapterEngine([SimpleNamespace(servers=[Handles(one)]) for one in made])
        opponents.sleep()  # before anybody was held
        play("a", "b", BASE)
        opponents.sleep()
        assert all(one.engine.loras == {123} for one in made), "they are gone from vLLM, and the policy's is not"
        shutil.rmtree(folders["a"])
        for one in made:
            runner.run(one.wake_up(["weights"]))
            assert runner.run(one.generate([1], {}, "r")).extra_fields["played"] == "123"
        play("b", "c")
        # one that is still held when its folder goes is an error of the waking, and is not listed any more
        shutil.rmtree(folders["b"])
        with pytest.raises(AdapterError, match="not loaded again after the engine slept: adapter b"):
            runner.run(made[0].wake_up(["weights"]))
        assert runner.run(made[0].list_adapters()) == ["c"]


def test_the_policy_is_not_played_by_the_base() -> None:
    async def play() -> None:
        made = server()
        await made.run_server(args())
        made.engine.loras.clear()
        with pytest.raises(AdapterError, match="does not have its adapter"):
            await made.generate([1], {}, "r")

    asyncio.run(play())


def test_an_engine_that_died_is_a_failure_of_its_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUN_DIR, str(tmp_path))

    async def play() -> None:
        made = server()
        await made.engine_answers()  # it has none yet
        made.replica_rank, made.node_rank, made._printed = 3, 0, Printed()
        made.engine = SimpleNamespace(errored=False, dead_error=EngineDeadError())
        await made.engine_answers()  # what it answers does not matter
        made.engine.errored = True
        with pytest.raises(EngineFailure, match=r"^the vLLM server died: .* SIGKILL.*/engine-3\.0\.log$"):
            await made.engine_answers()

    asyncio.run(play())
    assert (tmp_path / "engine-3.0.log").is_file()


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_nothing_breaks_off_is_handed_over_once(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of tokens need no rendering, and words are looked for only where they end a response."""
    asked: list[dict[str, Any]] = []

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        asked.append(sampling_params)
        async for output in self.engine.generate({"prompt_token_ids": prompt_ids, "multi_modal_data": {}}):
            prompt = output.prompt
        return TokenOutput(token_ids=[1], extra_fields={"prompt": prompt})

    monkeypatch.setattr(vLLMHttpServer, "generate", generate)

    async def play() -> list[TokenOutput]:
        made = server(lora_rank=0)
        await made.run_server(args())
        requests = [{"sampling_params": more, "whole": whole} for more in ({}, {"stop": ["."]})]
        requests = [{**request, "prompt_ids": [1, 2], "request_id": "r"} for request in requests]
        ended = [answers async for answers in made.generate_many(requests)]
        return [output for answers in ended for _, output in answers]

    for output in asyncio.run(play()):
        assert output.extra_fields["prompt"] == {"type": "token", "prompt_token_ids": [1, 2]}
    assert [request["detokenize"] for request in asked] == [False, True]
    assert all((request.get("output_kind") == RequestOutputKind.FINAL_ONLY) == whole for request in asked)
