"""From a checkpoint to a Hugging Face folder: exactly the weights, whole or not at all, and no code from a pickle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from recipe.spiral.export import writing
from recipe.spiral.export.__main__ import main
from recipe.spiral.export.source import Source, join
from recipe.spiral.storage.checkpoints import TRACKER, seal
from recipe.spiral.storage.run_files import EXPORTED
from tests.made_checkpoints import STEP, on_a_rank
from tests.ranks import run_ranks

SHARD = "actor/model_world_size_1_rank_0.pt"


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_ranks(on_a_rank, folder := tmp_path_factory.mktemp("one"), ranks=1)
    return folder


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_ranks(on_a_rank, folder := tmp_path_factory.mktemp("two"), ranks=2)
    return folder


@pytest.fixture
def run(one_rank: Path, tmp_path: Path) -> Path:
    """A run that may be broken."""
    return Path(shutil.copytree(one_rank / "untied", tmp_path / "run"))


def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / f"global_step_{STEP}"


def load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def tensors(file: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(file)


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(weight, theirs[name]) for name, weight in ours.items())


# -- whole models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_one_rank(one_rank: Path, tmp_path: Path, kind: str) -> None:
    from transformers import AutoTokenizer

    out, original = tmp_path / "out", one_rank / kind / "model"
    assert main([str(one_rank / kind), str(out), "--verify"]) == 0
    assert load(out).dtype == load(original).dtype
    assert same(load(out).state_dict(), load(original).state_dict())
    generation = load(out).generation_config
    assert (generation.temperature, generation.top_k, generation.top_p) == (0.7, 5, 0.9)
    ours, theirs = AutoTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(original)
    assert (ours.get_vocab(), ours.chat_template) == (theirs.get_vocab(), theirs.chat_template)
    # it would be needed by whoever loads the folder
    assert "attn_implementation" not in (out / "config.json").read_text()


def test_another_type(one_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main([str(one_rank / "untied"), str(out), "--dtype", "bfloat16", "--verify"]) == 0
    original = load(one_rank / "untied" / "model").to(torch.bfloat16).state_dict()
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    assert same(load(out).state_dict(), original)


def test_a_diverged_training_is_refused(run: Path, tmp_path: Path) -> None:
    weights = torch.load(checkpoint(run) / SHARD, weights_only=True)
    weights["model.norm.weight"].to_local()[3] = float("nan")
    torch.save(weights, checkpoint(run) / SHARD)
    seal(checkpoint(run))
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_it_says_how_it_plays(one_rank: Path, tmp_path: Path) -> None:
    """With nothing of this machine."""
    assert main([str(one_rank / "untied"), str(tmp_path / "out")]) == 0
    settings = OmegaConf.load(tmp_path / "out" / EXPORTED)
    assert settings.prompt.template == "chat" and settings.games == ["KuhnPoker", {"id": "TicTacToe", "weight": 2}]
    assert "path" not in (tmp_path / "out" / EXPORTED).read_text()


def test_a_difference_is_noticed(one_rank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(source: Source, weights: Any) -> Any:
        model = whole(source, weights)
        model.save_pretrained(tmp_path / "other")
        monkeypatch.setattr(
            type(model),
            "save_pretrained",
            lambda self, to, **more: shutil.copytree(tmp_path / "other", to, dirs_exist_ok=True),
        )
        with torch.no_grad():
            model.model.norm.weight[0] += 1e-6
        return model

    whole = writing.whole_model
    monkeypatch.setattr(writing, "whole_model", changed)
    assert main([str(one_rank / "untied"), str(tmp_path / "out"), "--verify"]) == 1
    assert not (tmp_path / "out").exists()


# -- the reference policy ----------------------------------------------------------------------------------------------


def with_reference(run: Path) -> Path:
    """The same run, with a reference policy that has half of each weight, of an adapter where there is one."""
    for file in (checkpoint(run) / "actor").glob("model_*.pt"):
        weights = torch.load(file, weights_only=True)
        trained = [name for name in weights if "lora_" in name] or weights
        (checkpoint(run) / "ref").mkdir(exist_ok=True)
        torch.save({name: weights[name].to_local() / 2 for name in trained}, checkpoint(run) / "ref" / file.name)
    seal(checkpoint(run))
    return run


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["untied", "tied", "lora", "lora_only"])
def test_the_reference_of_two_ranks(two_ranks: Path, tmp_path: Path, kind: str) -> None:
    run, out = with_reference(Path(shutil.copytree(two_ranks / kind, tmp_path / "run"))), tmp_path / "out"
    assert main([str(run), str(out), "--reference", "--verify"]) == 0
    original, name = run / "model", "model.safetensors"
    if kind.startswith("lora"):
        original, name = run / "adapter", "adapter_model.safetensors"
    assert same(tensors(out / name), {key: weight / 2 for key, weight in tensors(original / name).items()})


def test_a_reference_that_is_not_there(run: Path, tmp_path: Path) -> None:
    assert main([str(run), str(tmp_path / "out"), "--reference"]) == 2
    (checkpoint(run) / "ref").mkdir()
    torch.save({}, checkpoint(run) / "ref" / Path(SHARD).name)
    seal(checkpoint(run))
    assert main([str(run), str(tmp_path / "out"), "--reference"]) == 2, "it is the base model of LoRA"


# -- joining -----------------------------------------------------------------------------------------------------------


def spread(whole: torch.Tensor, mesh: list[Any], placements: list[Any], parts: list[torch.Tensor]) -> list[DTensor]:
    device_mesh = DeviceMesh("cpu", torch.tensor(mesh), _init_backend=False, _rank=0)
    meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)
    spec = DTensorSpec(device_mesh, tuple(placements), tensor_meta=meta)
    return [DTensor(part, spec, requires_grad=False) for part in parts]


def test_parts_become_a_whole() -> None:
    whole = torch.arange(10).reshape(5, 2)
    fourths, halves = [whole[:2], whole[2:4], whole[4:], whole[5:]], [whole[:3], whole[3:]]
    for mesh, placements, parts in (
        ([0, 1, 2, 3], [Shard(0)], fourths),
        ([0, 1], [Shard(1)], [whole[:, :1], whole[:, 1:]]),
        ([0, 1], [Replicate()], [whole, whole]),
        ([[0, 1], [2, 3]], [Replicate(), Shard(0)], halves * 2),
    ):
        shards = spread(whole, mesh, placements, parts)
        assert torch.equal(join("w", shards, shards), whole)
    for mesh, placements, parts in (
        ([0, 1], [Shard(0)], [whole[:2], whole[2:4]]),
        ([[0, 1], [2, 3]], [Shard(0), Shard(1)], halves * 2),
    ):
        with pytest.raises(ValueError, match=r"^w: "):
            join("w", shards := spread(whole, mesh, placements, parts), shards)


# -- LoRA --------------------------------------------------------------------------------------------------------------


def check_adapter(run: Path, out: Path) -> None:
    """The folder is what PEFT itself saved of the model before it was sharded."""
    from peft import PeftModel

    assert same(*(tensors(folder / "adapter_model.safetensors") for folder in (out, run / "adapter")))
    config = PeftModel.from_pretrained(load(run / "model"), out).peft_config["default"]
    assert (config.r, config.lora_alpha) == (4, 12)
    assert not (out / "config.json").exists() and (out / "chat_template.jinja").exists()


def check_merged(run: Path, out: Path) -> None:
    from peft import PeftModel

    expected = PeftModel.from_pretrained(load(run / "model"), run / "adapter").merge_and_unload()
    assert same(load(out).state_dict(), expected.state_dict())


@pytest.mark.parametrize("kind", ["lora", "lora_only"])
def test_an_adapter(one_rank: Path, tmp_path: Path, kind: str) -> None:
    assert main([str(one_rank / kind), str(tmp_path / "out"), "--verify"]) == 0
    check_adapter(one_rank / kind, tmp_path / "out")
    targets = json.loads((tmp_path / "out" / "adapter_config.json").read_text())["target_modules"]
    everything = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {name.split(".")[-1] for name in targets} == ({"q_proj", "v_proj"} if kind == "lora_only" else everything)


def test_a_merged_adapter(one_rank: Path, tmp_path: Path) -> None:
    assert main([str(one_rank / "lora"), str(tmp_path / "out"), "--merge", "--verify"]) == 0
    check_merged(one_rank / "lora", tmp_path / "out")


@pytest.mark.e2e
def test_an_adapter_of_two_ranks(two_ranks: Path, tmp_path: Path) -> None:
    assert main([str(two_ranks / "lora"), str(tmp_path / "adapter"), "--verify"]) == 0
    check_adapter(two_ranks / "lora", tmp_path / "adapter")
    assert main([str(two_ranks / "lora"), str(tmp_path / "merged"), "--merge"]) == 0
    check_merged(two_ranks / "lora", tmp_path / "merged")


# -- what is refused ---------------------------------------------------------------------------------------------------


class Planted:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_no_code_of_a_checkpoint_runs(run: Path, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2), "more": Planted(tmp_path / "ran")}, checkpoint(run) / SHARD)
    seal(checkpoint(run))
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("kind", "arguments", "damage"),
    [
        ("untied", ["--merge"], lambda folder: None),
        ("lora_only", ["--merge"], lambda folder: None),
        ("untied", [], lambda folder: (folder / SHARD).unlink()),
        ("untied", [], lambda folder: (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-1] + b"x")),
        ("untied", [], lambda folder: (folder / "actor/huggingface/config.json").write_text("{}")),
        ("untied", [], lambda folder: folder.rename(folder.with_name("global_step_70"))),
        ("untied", [], lambda folder: (folder / "spiral.json").write_text('{"step": 7}')),
        ("untied", [], shutil.rmtree),
    ],
)
def test_refused(one_rank: Path, tmp_path: Path, kind: str, arguments: list[str], damage: Any) -> None:
    run = Path(shutil.copytree(one_rank / kind, tmp_path / "run"))
    damage(checkpoint(run))
    assert main([str(run), str(tmp_path / "out"), *arguments]) == 2
    assert not (tmp_path / "out").exists()


def test_the_optimizer_is_not_asked_for(run: Path, tmp_path: Path) -> None:
    (checkpoint(run) / "actor/optim_world_size_1_rank_0.pt").unlink()
    (run / "checkpoints" / TRACKER).unlink()
    assert main([str(run), str(tmp_path / "out"), "--verify"]) == 0


def test_a_folder_that_is_not_empty(one_rank: Path, tmp_path: Path) -> None:
    run, out = str(one_rank / "untied"), tmp_path / "out"
    out.mkdir()
    assert main([run, str(out)]) == 0  # an empty one will do
    (out / "mine").write_text("x")
    assert main([run, str(out)]) == 2 and (out / "mine").exists()
    assert main([run, str(checkpoint(one_rank / "untied") / "new")]) == 2
