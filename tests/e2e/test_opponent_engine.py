"""Opponents' engines and adapters, with vLLM and Ray but without a training: whose weights answer, token by token."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from recipe.spiral import main_spiral  # noqa: F401  (resolvers)
from recipe.spiral.checks.settle import settle
from recipe.spiral.lab.own_command import clean_run
from recipe.spiral.players.seats import BASE
from recipe.spiral.processes.interrupts import interrupt_on_signals
from recipe.spiral.processes.launch import put_on_path
from recipe.spiral.workers.engine.client import WrongWeights
from tests.e2e.conftest import ROOT
from tests.e2e.engines import (
    KV_CACHE,
    LORA,
    SAMPLING,
    Engines,
    greedy,
    of_folder,
    other_weights,
    start,
    sync,
    with_adapter,
    with_model,
    workers,
)

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture(scope="module")
def tied(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with its embedding for an output layer; it has an output layer of its own."""
    folder = tmp_path_factory.mktemp("tied") / "first"
    shutil.copytree(model, folder)
    made = AutoModelForCausalLM.from_pretrained(model, tie_word_embeddings=True, dtype=torch.float32)
    made.tie_weights()
    made.save_pretrained(folder)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert "lm_head.weight" in load_file(model / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def members(tied: Path) -> dict[str, Path]:
    return {"first": tied, **{name: other_weights(tied, tied.parent / name, i) for i, name in enumerate("ab")}}


@pytest.fixture(scope="module")
def peft_folders(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("x", "y", "trained", "trained-more")):
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with_adapter = get_peft_model(base, LoraConfig(**LORA))
        for parameter_name, parameter in with_adapter.named_parameters():
            if "lora_" in parameter_name:
                torch.nn.init.normal_(parameter, std=0.2)
        with_adapter.save_pretrained(folder / name)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def engines(model: Path, tied: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    overrides = [
        f"actor_rollout_ref.model.path={model}",
        "hardware=cpu",
        "trainer.n_gpus_per_node=3",  # one for the engines, two for workers
        f"actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={KV_CACHE}",
    ]
    with initialize_config_dir(str(ROOT / "recipe/spiral/config"), version_base=None):
        config = compose("spiral_trainer", overrides)
    settle(config)
    with pytest.MonkeyPatch.context() as patch, clean_run(tmp_path_factory.mktemp("run"), "run_dir"):
        for name, value in OmegaConf.to_container(config.environment, resolve=True).items():
            patch.setenv(name, str(value))
        patch.setenv("RANK", "0")
        patch.setenv("RAY_LOCAL_WORLD_SIZE", "1")
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        put_on_path(ROOT)
        ray.init(**OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True))
        interrupt_on_signals()  # Ray took SIGTERM: a test would fail by it, and the session go on
        try:
            yield start(config, model, tied)
        finally:
            ray.shutdown()


# -- full weights ------------------------------------------------------------------------------------------------------


def test_slots_answer_with_the_weights_that_were_loaded(engines: Engines, members: Mapping[str, Path]) -> None:
    expected = {name: of_folder(folder, engines.prompts) for name, folder in members.items()}
    assert all(a != b for a, b in itertools.combinations(expected.values(), 2))
    with pytest.raises(WrongWeights, match="a was asked for a response, and None answered"):
        engines.answers("a", 0)
    # to the engine's own first weights and back
    for names, slots in ((["a", "first"], [0, 1]), (["first", "b"], [1, 0]), (["b", "a"], [0, 1])):
        loaded = engines.opponents.load({name: members[name] for name in names})
        assert loaded == {name: (slot,) for name, slot in zip(names, slots, strict=True)}
        for name, slot in zip(names, slots, strict=True):
            assert engines.answers(name, slot) == expected[name]
    with pytest.raises(WrongWeights, match="a was asked for a response, and b answered"):
        engines.answers("a", 0)
    engines.opponents.sleep()  # nothing on a CPU
    assert engines.answers("b", 0) == expected["b"]


def test_many_requests_to_several_players_at_once(engines: Engines, members: Mapping[str, Path]) -> None:
    players = {name: slots[0] for name, slots in engines.opponents.load({n: members[n] for n in "ab"}).items()}
    expected = {name: of_folder(members[name], engines.prompts) for name in players}

    async def play() -> None:
        asked = [(name, i) for _ in range(8) for i in range(len(engines.prompts)) for name in players]
        outputs = await asyncio.gather(*[engines.ask(name, players[name], engines.prompts[i]) for name, i in asked])
        for (name, i), output in zip(asked, outputs, strict=True):
            assert (output.token_ids, output.extra_fields["answered_by"]) == (expected[name][i], name)

    asyncio.run(play())


def broken(folder: Path, how: str) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    if how == "missing":
        del weights["model.norm.weight"]
    elif how == "shape":
        weights["model.norm.weight"] = torch.ones(7)
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:-1000])
    elif how == "gone":
        file.unlink()
    else:
        save_file(weights, file, {"format": "pt"})


@pytest.mark.parametrize("whole", [False, True])
def test_an_answer_is_broken_off_unless_it_is_whole(engines: Engines, members: Mapping[str, Path], whole: bool) -> None:
    """verl waits for a first output of every request before it breaks any off."""
    slots = engines.opponents.load({"a": members["a"]})
    server = engines.opponents.handles[slots["a"][0]]
    sampling = {**SAMPLING, "max_tokens": 400}
    request = {"prompt_ids": engines.prompts[0], "sampling_params": sampling, "request_id": "long", "whole": whole}

    async def play() -> Any:
        answers = server.generate_many.options(num_returns="streaming").remote([request])
        await asyncio.sleep(0.1)
        await server.abort_all_requests.remote()
        ((_, output),) = await (await anext(answers))
        await server.resume_generation.remote()
        return output

    output = asyncio.run(play())
    assert (len(output.token_ids) == 400) is whole


@pytest.mark.parametrize("how", ["missing", "shape", "cut short", "gone"])
def test_weights_that_do_not_fit_are_refused(
    engines: Engines, members: Mapping[str, Path], tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(members["b"], folder)
    broken(folder, how)
    with pytest.raises(Exception, match=r"broken"):
        engines.opponents.load({"b": folder})
    with pytest.raises(WrongWeights):
        engines.answers("b", 0)
    slots = engines.opponents.load({"a": members["a"]})
    assert engines.answers("a", slots["a"][0]) == of_folder(members["a"], engines.prompts)


# -- LoRA --------------------------------------------------------------------------------------------------------------


def test_adapters_and_the_base_in_one_batch(engines: Engines, model: Path, peft_folders: Mapping[str, Path]) -> None:
    expected = {name: greedy(with_adapter(model, path), engines.prompts) for name, path in peft_folders.items()}
    expected[BASE] = of_folder(model, engines.prompts)
    assert all(a != b for a, b in itertools.combinations(expected.values(), 2))

    sync(engines, peft_folders["trained"], model)
    engines.adapters.load({name: peft_folders[name] for name in "xy"})

    async def play() -> None:
        asked = [(name, i) for _ in range(4) for i in range(len(engines.prompts)) for name in ("x", None, BASE, "y")]
        calls = [
            engines.client.generate(str(n), prompt_ids=engines.prompts[i], sampling_params=SAMPLING)
            if name is None
            else engines.ask(name, None, engines.prompts[i])
            for n, (name, i) in enumerate(asked)
        ]
        for (name, i), output in zip(asked, await asyncio.gather(*calls), strict=True):
            assert output.token_ids == expected[name or "trained"][i], name
            assert output.extra_fields.get("answered_by") == name

    asyncio.run(play())

    sync(engines, peft_folders["trained-more"], model)
    assert engines.of_policy() == expected["trained-more"]
    for name in ("x", "y", BASE):
        assert engines.answers(name) == expected[name], "a sync of the policy's adapter changes no other"

    ray.get(engines.policy.servers[0].wake_up.remote())  # as after a sleep: they are read again
    assert engines.answers("x") == expected["x"]
    engines.adapters.load({"y": peft_folders["y"], "z": peft_folders["trained"]})
    assert engines.answers("z") == expected["trained"] and engines.of_policy() == expected["trained-more"]
    with pytest.raises(Exception, match="adapter x: not loaded"):
        engines.answers("x")


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_plays_as_the_policy_does(engines: Engines, members: Mapping[str, Path], tmp_path: Path) -> None:
    with workers(with_model(engines.config, path=str(members["b"])), ranks=2) as group:
        group.save_snapshot(str(tmp_path / "step-1"))
    saved, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "step-1", members["b"]))
    assert saved.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in saved.items())
    slots = engines.opponents.load({"step-1": tmp_path / "step-1"})
    assert engines.answers("step-1", slots["step-1"][0]) == of_folder(members["b"], engines.prompts)


def test_with_lora_a_snapshot_is_an_adapter(
    engines: Engines, model: Path, peft_folders: Mapping[str, Path], tmp_path: Path
) -> None:
    settings = {"lora_rank": LORA["r"], "lora_alpha": LORA["lora_alpha"], "lora_adapter_path": str(peft_folders["x"])}
    with workers(with_model(engines.config, **settings), ranks=2) as group:
        group.save_snapshot(str(tmp_path / "step-1"))
    engines.adapters.load({"step-1": tmp_path / "step-1"})
    assert engines.answers("step-1") == greedy(with_adapter(model, peft_folders["x"]), engines.prompts)


def test_where_lora_is_merged_a_snapshot_is_the_whole_model(
    engines: Engines, model: Path, peft_folders: Mapping[str, Path], tmp_path: Path
) -> None:
    settings = {
        "lora_rank": LORA["r"],
        "lora_alpha": LORA["lora_alpha"],
        "lora_adapter_path": str(peft_folders["x"]),
        "lora": {"merge": True},
    }
    with workers(with_model(engines.config, **settings), ranks=1) as group:
        group.save_snapshot(str(tmp_path / "step-1"))
    saved = load_file(tmp_path / "step-1" / "model.safetensors")
    merged = with_adapter(model, peft_folders["x"]).merge_and_unload().state_dict()
    assert saved.keys() == merged.keys()
    for name, weight in saved.items():  # verl rounds them to bfloat16 on their way to the engine
        torch.testing.assert_close(weight, merged[name], rtol=2**-7, atol=1e-6)
