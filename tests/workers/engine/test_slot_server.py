"""A slot answers with one player's weights from the first token to the last, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from verl.workers.rollout.replica import RolloutMode, TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from recipe.spiral.workers.engine import slot_server
from recipe.spiral.workers.engine.fitting import UnfitWeights
from recipe.spiral.workers.engine.slot_server import EmptySlot, SlotServer


class Engine:
    """Its weights are the folder that was loaded last; while it loads, they are both."""

    def __init__(self) -> None:
        self.weights = "first"
        self.slept: list[int] = []
        self.fails = False
        self.dropped = True

    async def collective_rpc(self, method: str, timeout: float, kwargs: dict[str, str]) -> None:
        assert method == "reload_weights" and timeout > 0
        self.weights = "mixed"
        await asyncio.sleep(0.02)
        if self.fails:
            raise RuntimeError("out of memory")
        self.weights = kwargs["weights_path"]

    async def reset_prefix_cache(self, reset_connector: bool) -> bool:
        return self.dropped

    async def sleep(self, level: int) -> None:
        self.slept.append(level)

    async def reset_encoder_cache(self) -> None: ...

    async def wake_up(self, tags: list[str]) -> None: ...


@pytest.fixture(autouse=True)
def verls_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes the engine's weights at each token."""

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        rejected: TokenOutput | None = await self._park_until_admitted(request_id)
        if rejected is not None:
            return rejected
        seen = set()
        for _ in range(5):
            seen.add(self.engine.weights)
            await asyncio.sleep(0.002)
        return TokenOutput(token_ids=[1], extra_fields={"weights": seen})

    monkeypatch.setattr(vLLMHttpServer, "generate", generate)
    monkeypatch.setattr(slot_server, "check_fits", lambda folder, model: None)


def server(free_cache_engine: bool = True, mode: RolloutMode = RolloutMode.HYBRID) -> Any:
    made = object.__new__(SlotServer)
    made._loading, made.node_rank = asyncio.Lock(), 0
    made._submission_paused = made._rejecting = False
    made._admitting, made.global_steps = 0, None
    made.engine = Engine()
    made.rollout_mode = mode
    made.config = SimpleNamespace(free_cache_engine=free_cache_engine)
    made.model_config = SimpleNamespace(local_path="/model")
    return made


async def ask(made: Any) -> TokenOutput:
    output: TokenOutput = await made.generate([1], {}, "request")
    return output


def test_it_answers_as_who_is_loaded() -> None:
    async def play() -> None:
        made = server()
        with pytest.raises(EmptySlot, match="has no weights"):
            await ask(made)
        await made.load("a", "/a")
        output = await ask(made)
        assert (output.extra_fields, await made.loaded()) == ({"weights": {"/a"}, "answered_by": "a"}, "a")

    asyncio.run(play())


def test_no_answer_spans_a_load() -> None:
    async def play() -> set[str]:
        made, seen = server(), set()
        await made.load("/a", "/a")

        async def one(delay: float) -> None:
            await asyncio.sleep(delay)
            try:
                output = await ask(made)
            except EmptySlot:
                seen.add("refused")
            else:
                assert output.extra_fields["weights"] == {output.extra_fields["answered_by"]}
                seen.add(output.extra_fields["answered_by"])

        async def load() -> None:
            await asyncio.sleep(0.02)
            await made.load("/b", "/b")

        await asyncio.gather(load(), *[one(0.002 * i) for i in range(50)])
        await one(0.0)  # on a busy machine all others may come before the load's end
        return seen

    assert asyncio.run(play()) == {"/a", "/b", "refused"}


@pytest.mark.parametrize("fails", ["check", "engine", "cache"])
def test_after_a_failed_load_it_answers_nobody(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    async def play() -> None:
        made = server()
        await made.load("a", "/a")
        if fails == "check":

            def refuse(folder: Path, model: Path) -> None:
                assert (folder, model) == (Path("/b"), Path("/model"))
                raise UnfitWeights("other shapes")

            monkeypatch.setattr(slot_server, "check_fits", refuse)
        made.engine.fails, made.engine.dropped = fails == "engine", fails != "cache"
        with pytest.raises((UnfitWeights, RuntimeError), match=r"other shapes|out of memory|did not drop"):
            await made.load("b", "/b")
        assert await made.loaded() is None
        with pytest.raises(EmptySlot):
            await ask(made)

        made.engine.fails, made.engine.dropped = False, True
        monkeypatch.setattr(slot_server, "check_fits", lambda folder, model: None)
        if fails == "engine":
            with pytest.raises(EmptySlot, match="failed in the middle of a load"):
                await made.load("c", "/c")
        else:
            await made.load("c", "/c")
            assert (await ask(made)).extra_fields["answered_by"] == "c"

    asyncio.run(play())


def test_an_answer_that_does_not_end_does_not_hang_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        made = server()
        made.under_way = 1
        with pytest.raises(TimeoutError):
            await made.load("b", "/b")
        assert await made.loaded() is None and made.engine.weights == "first"

    monkeypatch.setattr(slot_server, "LIMIT", 0.05)
    asyncio.run(play())


def test_asleep_it_answers_nobody() -> None:
    async def play() -> None:
        made = server()
        await made.load("a", "/a")
        await made.go_to_sleep(2)
        await made.go_to_sleep(2)
        assert made.engine.slept == [2], "once, without the weights"
        with pytest.raises(EmptySlot):
            await ask(made)
        with pytest.raises(EmptySlot, match="wake it first"):
            await made.load("b", "/b")
        await made.awake()
        await made.load("b", "/b")
        assert (await ask(made)).extra_fields["answered_by"] == "b"

    asyncio.run(play())


def test_with_its_weights_on_the_host_it_is_the_same_after_its_sleep() -> None:
    async def play() -> None:
        made = server()
        await made.load("a", "/a")
        await made.go_to_sleep(1)
        assert (made.engine.slept, await made.loaded()) == ([1], "a")
        with pytest.raises(EmptySlot, match="sleeps"):
            await ask(made)
        await made.awake()
        assert (await ask(made)).extra_fields["answered_by"] == "a"
        await made.go_to_sleep(2)
        assert (made.engine.slept, await made.loaded()) == ([1, 2], None)

    asyncio.run(play())


def test_it_says_what_it_would_keep_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("model-1.safetensors", 30), ("model-2.safetensors", 12), ("tokenizer.json", 500)):
        (tmp_path / name).write_bytes(bytes(size))
    made = server()
    made.model_config.local_path = str(tmp_path)
    context = SimpleNamespace(get_node_id=lambda: "node")
    monkeypatch.setattr(slot_server, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    told = asyncio.run(made.host_memory())
    assert (told.node, told.weights) == ("node", 42) and told.free > 2**20


@pytest.mark.parametrize(
    "settings", [{"free_cache_engine": False}, {"mode": RolloutMode.STANDALONE}], ids=["CPU", "own devices"]
)
def test_where_nothing_is_to_be_freed_it_does_not_sleep(settings: dict[str, Any]) -> None:
    async def play() -> None:
        made = server(**settings)
        await made.load("a", "/a")
        await made.go_to_sleep(2)
        await made.awake()
        assert not made.engine.slept
        assert (await ask(made)).extra_fields["answered_by"] == "a"

    asyncio.run(play())


def test_a_policy_from_the_hub_is_compared_with_its_copy_on_this_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    compared: list[tuple[Path, Path]] = []

    def download(name: str, **_: Any) -> str:
        asked.append(name)
        return str(tmp_path)

    async def play() -> None:
        made = server()
        made.model_config.local_path = "Qwen/Qwen3-0.6B"  # as verl leaves it
        await made.load("a", "/a")
        await made.load("b", "/b")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(slot_server, "check_fits", lambda folder, model: compared.append((folder, model)))
    asyncio.run(play())
    assert asked == ["Qwen/Qwen3-0.6B"], "the hub is asked once"
    assert compared == [(Path("/a"), tmp_path), (Path("/b"), tmp_path)]


def test_a_hub_that_cannot_be_reached_leaves_the_slot_empty_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, **_: Any) -> str:
        raise OSError("no route to the hub")

    async def play() -> None:
        made = server()
        made.model_config.local_path = "Qwen/Qwen3-0.6B"
        with pytest.raises(ValueError, match=r"Qwen/Qwen3-0\.6B: .* could not be had from the hub: no route"):
            await made.load("a", "/a")
        assert await made.loaded() is None and made.engine.weights == "first"
        monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: "/copy")
        await made.load("a", "/a")
        assert (await ask(made)).extra_fields["answered_by"] == "a"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    asyncio.run(play())


def test_a_paused_slot_tells_who_asks_to_come_again_and_can_sleep() -> None:
    """In the asynchronous modes games go on after a step's training; whoever waited here would keep it awake."""

    async def play() -> None:
        made = server()
        await made.load("b", "/b")
        made._submission_paused = made._rejecting = True  # as abort_all_requests(reject_request=True)
        assert (await ask(made)).stop_reason == "aborted"
        await asyncio.wait_for(made.go_to_sleep(1), 1)
        assert (await ask(made)).stop_reason == "aborted"
        await made.awake()
        made._submission_paused = False
        assert (await ask(made)).extra_fields["answered_by"] == "b"

    asyncio.run(play())
