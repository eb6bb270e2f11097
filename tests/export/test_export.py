"""From a checkpoint to a Hugging Face folder: exactly the weights, whole or not at all, and no code from a pickle."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors import SafetensorError
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from recipe.spiral.export import lora, writing
from recipe.spiral.export.__main__ import main
from recipe.spiral.export.exporting import Different, ExportError
from recipe.spiral.export.source import HUGGINGFACE, Source
from recipe.spiral.export.weights import join, whole_model
from recipe.spiral.export.writing import verify_model
from recipe.spiral.storage.checkpoints import EXPORTED, TRACKER, BrokenCheckpoint, write_state
from tests.made_checkpoints import STEP, on_a_rank
from tests.ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]
SHARD = "actor/model_world_size_1_rank_0.pt"


def in_a_new_process(*command: str, limit: float = 280, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit)


def made(folder: Path, ranks: int) -> Path:
    run_ranks(on_a_rank, folder, ranks=ranks)
    return folder


@pytest.fixture(scope="session")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture
def run(one_rank: Path, tmp_path: Path) -> Path:
    """A run that may be broken."""
    return Path(shutil.copytree(one_rank / "untied", tmp_path / "run"))


def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / f"global_step_{STEP}"


def load(folder: Path, **more: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **more)


def assert_same(folder: Path, original: Path) -> None:
    """Every tensor to the bit, and the tokens at temperature 0."""
    ours, theirs = load(folder), load(original)
    expected = theirs.state_dict()
    assert ours.dtype == theirs.dtype
    assert ours.state_dict().keys() == expected.keys()
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    assert greedy(ours) == greedy(theirs)


def greedy(model: Any) -> list[int]:
    prompt = torch.tensor([[5, 9, 17, 30, 4]])
    return model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12, eos_token_id=None
    )[0].tolist()


# -- whole models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_one_rank(one_rank: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([str(one_rank / kind), str(out), "--verify"]) == 0
    assert_same(out, one_rank / kind / "model")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"exported step {STEP}, verified: ") and shown[0].endswith(str(out))


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_two_ranks(two_ranks: Path, tmp_path: Path, kind: str) -> None:
    assert main([str(checkpoint(two_ranks / kind)), str(tmp_path / "out"), "--verify"]) == 0
    assert_same(tmp_path / "out", two_ranks / kind / "model")


def test_all_but_the_weights_survives(one_rank: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    out, original = tmp_path / "out", one_rank / "tied" / "model"
    assert main([str(one_rank / "tied"), str(out)]) == 0
    assert load(out).config.tie_word_embeddings
    generation = load(out).generation_config
    assert (generation.temperature, generation.top_k, generation.top_p) == (0.7, 5, 0.9)
    ours, theirs = AutoTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(original)
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.chat_template == theirs.chat_template
    # it would be needed by whoever loads the folder
    assert "flash_attention_2" in (checkpoint(one_rank / "tied") / "actor/huggingface/config.json").read_text()
    assert "attn_implementation" not in (out / "config.json").read_text()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
def test_another_type(one_rank: Path, tmp_path: Path, name: str) -> None:
    out, dtype = tmp_path / "out", getattr(torch, name)
    assert main([str(one_rank / "untied"), str(out), "--dtype", name, "--verify"]) == 0
    model, original = load(out), load(one_rank / "untied" / "model").state_dict()
    assert model.dtype == dtype and json.loads((out / "config.json").read_text())["dtype"] == name
    assert all(torch.equal(weight, original[key].to(dtype)) for key, weight in model.state_dict().items())


def test_weights_beyond_a_type_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.load(checkpoint(run) / SHARD, weights_only=True)
    weights["model.norm.weight"].to_local()[3] = 1e6
    torch.save(weights, checkpoint(run) / SHARD)
    assert main([str(run), str(tmp_path / "out"), "--dtype", "float16"]) == 2
    assert "model.norm.weight: has values that are no finite float16; try --dtype bfloat16" in capsys.readouterr().err
    assert main([str(run), str(tmp_path / "out"), "--dtype", "bfloat16"]) == 0


def test_a_diverged_training_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.load(checkpoint(run) / SHARD, weights_only=True)
    weights["model.norm.weight"].to_local()[3] = float("nan")
    torch.save(weights, checkpoint(run) / SHARD)
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert "model.norm.weight: has values that are no finite numbers; the training diverged" in capsys.readouterr().err


def test_tied_weights_that_differ_are_refused(one_rank: Path, tmp_path: Path) -> None:
    huggingface = checkpoint(one_rank / "tied") / "actor" / "huggingface"
    weights = load(one_rank / "tied" / "model").state_dict()
    assert "lm_head.weight" in weights
    with pytest.raises(ExportError, match=r"model\.embed_tokens\.weight and lm_head\.weight are one in the model"):
        whole_model(huggingface, {**weights, "lm_head.weight": weights["lm_head.weight"] + 1})


def test_the_card_says_where_it_comes_from(one_rank: Path, tmp_path: Path) -> None:
    assert main([str(one_rank / "untied"), str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    for fact in (
        "| run | spiral/made |",
        f"| step | {STEP} |",
        "| seed | 3 |",
        "| games | KuhnPoker, TicTacToe |",
        "| trained from | the embedded model `tiny` |",
        "| prompt template | chat |",
    ):
        assert fact in card
    assert str(tmp_path.parent) not in card and str(one_rank) not in card


def test_it_says_how_the_run_plays(one_rank: Path, tmp_path: Path) -> None:
    """What evaluation and play take of a run's config, and nothing of this machine."""
    assert main([str(one_rank / "untied"), str(tmp_path / "out")]) == 0
    settings = OmegaConf.load(tmp_path / "out" / EXPORTED)
    run = Source.find(one_rank / "untied")
    assert settings.prompt.template == "chat" and list(settings.games) == run.setting("games")
    assert settings.keys() <= {"games", "prompt", "rules", "data", "actor_rollout_ref"}
    assert "path" not in (tmp_path / "out" / EXPORTED).read_text()


def test_without_the_runs_config(run: Path, tmp_path: Path) -> None:
    (run / "config.yaml").unlink()
    assert main([str(run), str(tmp_path / "out"), "--verify"]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / EXPORTED).exists()
    assert "| run | run |" in card and "| seed | 3 |" in card and "| games | KuhnPoker, TicTacToe |" in card


def test_what_is_not_the_checkpoints_is_noticed(one_rank: Path, tmp_path: Path) -> None:
    model = load(one_rank / "untied" / "model")
    verify_model(one_rank / "untied" / "model", model)
    with torch.no_grad():
        model.model.norm.weight[0] += 1e-6
    with pytest.raises(Different, match=r"model\.norm\.weight is not what the checkpoint holds"):
        verify_model(one_rank / "untied" / "model", model)


# -- the reference policy ----------------------------------------------------------------------------------------------


def with_reference(run: Path) -> Path:
    """The same run, with a reference policy that has half of each weight, of an adapter where there is one."""
    for file in (checkpoint(run) / "actor").glob("model_*.pt"):
        weights = torch.load(file, weights_only=True)
        trained = [name for name in weights if "lora_" in name] or weights
        (checkpoint(run) / "ref").mkdir(exist_ok=True)
        torch.save({name: weights[name].to_local() / 2 for name in trained}, checkpoint(run) / "ref" / file.name)
    return run


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["untied", "tied", "lora", "lora_only"])
def test_the_reference_of_two_ranks(two_ranks: Path, tmp_path: Path, kind: str) -> None:
    from safetensors.torch import load_file

    run, out = with_reference(Path(shutil.copytree(two_ranks / kind, tmp_path / "run"))), tmp_path / "out"
    assert main([str(run), str(out), "--reference", "--verify"]) == 0
    original, name = run / "model", "model.safetensors"
    if kind.startswith("lora"):
        original, name = run / "adapter", "adapter_model.safetensors"
    expected, made = load_file(original / name), load_file(out / name)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[key], weight / 2) for key, weight in expected.items())
    assert ", step 7, reference policy" in (out / "README.md").read_text()


def test_a_reference_that_is_not_there(one_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = Path(shutil.copytree(one_rank / "lora", tmp_path / "run")), str(tmp_path / "out")
    assert main([str(run), out, "--reference"]) == 2
    assert "has no reference policy, which needs ref_update_freq in training" in capsys.readouterr().err
    file = checkpoint(with_reference(run)) / "ref" / Path(SHARD).name
    torch.save({}, file)
    assert main([str(run), out, "--reference"]) == 2
    assert "is the model without its adapter" in capsys.readouterr().err
    torch.save({"a": torch.ones(1)}, file)
    assert main([str(run), out, "--reference"]) == 2
    assert "the policy has no weights a" in capsys.readouterr().err
    with_reference(run)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert main([str(run), out]) == 0, "what is not taken is not looked at"
    assert main([str(run), f"{out}2", "--reference"]) == 2
    assert f"damaged: ref/{file.name}" in capsys.readouterr().err
    other = tmp_path / "other.pt"
    file.rename(other)
    file.symlink_to(other)
    assert main([str(run), f"{out}2", "--reference"]) == 2
    assert "is a link out of the checkpoint" in capsys.readouterr().err


# -- joining -----------------------------------------------------------------------------------------------------------


def spread(whole: torch.Tensor, mesh: list[Any], placements: list[Any], parts: list[torch.Tensor]) -> list[DTensor]:
    device_mesh = DeviceMesh("cpu", torch.tensor(mesh), _init_backend=False, _rank=0)
    meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)
    spec = DTensorSpec(device_mesh, tuple(placements), tensor_meta=meta)
    return [DTensor(part, spec, requires_grad=False) for part in parts]


def test_parts_of_unequal_length() -> None:
    whole = torch.arange(10).reshape(5, 2)
    parts = [whole[:2], whole[2:4], whole[4:], whole[5:]]
    assert torch.equal(join("w", spread(whole, [0, 1, 2, 3], [Shard(0)], parts)), whole)
    assert torch.equal(join("w", spread(whole, [0, 1], [Shard(1)], [whole[:, :1], whole[:, 1:]])), whole)
    with pytest.raises(ExportError, match=r"w: the ranks' parts make \(4, 2\), not \(5, 2\)"):
        join("w", spread(whole, [0, 1], [Shard(0)], [whole[:2], whole[2:4]]))


def test_replicas() -> None:
    whole = torch.arange(10).reshape(5, 2)
    parts = [whole[:3], whole[3:], whole[:3], whole[3:]]
    assert torch.equal(join("w", spread(whole, [[0, 1], [2, 3]], [Replicate(), Shard(0)], parts)), whole)
    assert torch.equal(join("w", spread(whole, [0, 1], [Replicate()], [whole, whole])), whole)
    assert torch.equal(join("w", [whole, whole.clone()]), whole)
    with pytest.raises(ExportError, match="w: not sharded, and yet not the same on every rank"):
        join("w", [whole, whole + 1])
    with pytest.raises(ExportError, match="w: spread over 4 ranks, and there are 2"):
        join("w", spread(whole, [[0, 1], [2, 3]], [Shard(0), Replicate()], parts[:2]))
    with pytest.raises(ExportError, match="only FSDP's way"):
        join("w", spread(whole, [[0, 1], [2, 3]], [Shard(0), Shard(1)], parts))


# -- LoRA --------------------------------------------------------------------------------------------------------------


def check_adapter(run: Path, out: Path) -> None:
    """The folder is what PEFT itself saved of the model before it was sharded."""
    from peft import PeftModel
    from safetensors.torch import load_file

    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (out, run / "adapter"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    expected = PeftModel.from_pretrained(load(run / "model"), run / "adapter")
    loaded = PeftModel.from_pretrained(load(run / "model"), out)
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha) == (4, 12)
    assert greedy(loaded) == greedy(expected) != greedy(load(run / "model"))
    assert not (out / "config.json").exists() and (out / "chat_template.jinja").exists()


def check_merged(run: Path, out: Path) -> None:
    from peft import PeftModel

    expected = PeftModel.from_pretrained(load(run / "model"), run / "adapter").merge_and_unload()
    merged = load(out)
    assert merged.state_dict().keys() == expected.state_dict().keys()
    assert all(torch.equal(weight, expected.state_dict()[name]) for name, weight in merged.state_dict().items())
    assert greedy(merged) == greedy(expected)


@pytest.mark.parametrize("kind", ["lora", "lora_only"])
def test_an_adapter(one_rank: Path, tmp_path: Path, kind: str) -> None:
    assert main([str(one_rank / kind), str(tmp_path / "out"), "--verify"]) == 0
    check_adapter(one_rank / kind, tmp_path / "out")
    targets = json.loads((tmp_path / "out" / "adapter_config.json").read_text())["target_modules"]
    everything = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(targets) == ({"q_proj", "v_proj"} if kind == "lora_only" else everything)
    assert "library_name: peft" in (tmp_path / "out" / "README.md").read_text()
    assert main([str(one_rank / kind), str(tmp_path / "half"), "--dtype", "bfloat16", "--verify"]) == 0


def test_a_merged_adapter(one_rank: Path, tmp_path: Path) -> None:
    assert main([str(one_rank / "lora"), str(tmp_path / "out"), "--merge", "--verify"]) == 0
    check_merged(one_rank / "lora", tmp_path / "out")


@pytest.mark.e2e
def test_an_adapter_of_two_ranks(two_ranks: Path, tmp_path: Path) -> None:
    assert main([str(two_ranks / "lora"), str(tmp_path / "adapter"), "--verify"]) == 0
    check_adapter(two_ranks / "lora", tmp_path / "adapter")
    assert main([str(two_ranks / "lora"), str(tmp_path / "merged"), "--merge"]) == 0
    check_merged(two_ranks / "lora", tmp_path / "merged")


def test_what_cannot_be_merged(one_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(one_rank / "lora_only"), str(tmp_path / "out"), "--merge"]) == 2
    assert "holds the adapter alone" in capsys.readouterr().err
    assert main([str(one_rank / "untied"), str(tmp_path / "out"), "--merge"]) == 2
    assert "holds no LoRA weights" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_alpha_is_what_was_trained_with(one_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(one_rank / "lora", tmp_path / "run"))
    (checkpoint(run) / "actor" / "lora_train_meta.json").unlink()
    assert main([str(run), str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["lora_alpha"] == 12
    (run / "config.yaml").unlink()
    assert main([str(run), str(tmp_path / "other")]) == 2
    assert "LoRA's alpha is not known" in capsys.readouterr().err


def test_layers_that_were_left_out_stay_left_out(one_rank: Path) -> None:
    huggingface = checkpoint(one_rank / "untied") / "actor" / "huggingface"
    both = {f"model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)}
    assert lora._targets(both, huggingface) == ["q_proj"]
    assert lora._targets({min(both)}, huggingface) == [min(both)]
    with pytest.raises(ExportError, match="is no module of the model"):
        lora._targets({"model.layers.9.mlp"}, huggingface)


# -- which checkpoint --------------------------------------------------------------------------------------------------


def test_the_runs_latest_checkpoint(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer, unfinished = (run / "checkpoints" / f"global_step_{step}" for step in (20, 30))
    for folder, step in ((newer, 20), (unfinished, 30)):
        write_state(shutil.copytree(checkpoint(run), folder), {"step": step})
    (run / "checkpoints" / TRACKER).write_text("20")
    assert Source.find(run).step == 20  # a save that ended names itself in the tracker
    assert Source.find(run, 30).step == 30
    (newer / "data.pt").unlink()
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert f"checkpoint {newer} is not whole (1 rank(s)): missing or cut short: data.pt" in capsys.readouterr().err
    (run / "checkpoints" / TRACKER).unlink()
    assert Source.find(run).step == 30


def test_checkpoints_that_lie_elsewhere(run: Path, tmp_path: Path) -> None:
    shutil.move(run / "checkpoints", tmp_path / "elsewhere")
    config = run / "config.yaml"
    told = f"trainer: {{default_local_dir: {tmp_path / 'elsewhere'}, "
    config.write_text(config.read_text().replace("trainer: {", told))
    found = Source.find(run)
    assert (found.folder, found.run) == (tmp_path / "elsewhere" / f"global_step_{STEP}", "run")
    assert found.games() == ["KuhnPoker", "TicTacToe"]


def test_a_critic_is_not_asked_for(run: Path) -> None:
    checkpoint = run / "checkpoints" / f"global_step_{STEP}"
    (checkpoint / "critic").mkdir()
    assert Source.find(run).folder == checkpoint
    (checkpoint / SHARD).unlink()
    with pytest.raises(BrokenCheckpoint, match=rf"missing or cut short: {SHARD}$"):
        Source.find(run)


def test_a_checkpoint_that_is_not_whole(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint(run) / "data.pt").unlink()
    (checkpoint(run) / SHARD).unlink()
    (checkpoint(run) / "actor/huggingface/config.json").unlink()
    for path in (run, checkpoint(run)):
        assert main([str(path), str(tmp_path / "out")]) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("spiral: checkpoint ")
        assert last.endswith(f"missing or cut short: data.pt, {SHARD}, actor/huggingface/config.json")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_under_another_steps_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(run).rename(other := checkpoint(run).with_name("global_step_70"))
    assert main([str(other), str(tmp_path / "out")]) == 2
    assert f"{other}: damaged: spiral.json: is of step {STEP}" in capsys.readouterr().err


def test_no_checkpoint(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path / "none")], "there is no such folder"),
        ([str(run), "--step", "8"], f"there are: {STEP}"),
        ([str(checkpoint(run)), "--step", "8"], "must be a checkpoint's folder, global_step_8"),
        ([str(checkpoint(run) / "actor")], "there is no checkpoint (global_step_<n>); there are: none"),
    ):
        assert main([*arguments, str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_empty(one_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert main([str(one_rank / "untied"), str(out)]) == 0  # an empty one will do
    (out / "mine").write_text("x")
    assert main([str(one_rank / "tied"), str(out)]) == 2
    assert "is not empty; name another folder, or replace it with --force" in capsys.readouterr().err
    assert (out / "mine").exists()
    assert main([str(one_rank / "tied"), str(out), "--force"]) == 0
    assert not (out / "mine").exists()
    assert_same(out, one_rank / "tied" / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "work.py").touch()
    with contextlib.chdir(tmp_path):  # "$UNSET"
        assert main([str(one_rank / "tied"), "", "--force"]) == 2
    assert f"{tmp_path}: holds no model, so --force does not replace it" in capsys.readouterr().err
    assert (tmp_path / "work.py").exists()


@pytest.mark.parametrize("inside", [".", "..", "../..", "actor/new"])
def test_the_checkpoint_is_never_overwritten(run: Path, inside: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), str(checkpoint(run) / inside), "--force"]) == 2
    assert "must neither hold the checkpoint nor lie in it" in capsys.readouterr().err
    assert (checkpoint(run) / SHARD).exists()


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("error", [OSError, SafetensorError])
def test_whole_or_not_at_all(
    one_rank: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    was_there: bool,
    error: type[Exception],
) -> None:
    out = tmp_path / "out"
    if was_there:
        out.mkdir()
        (out / "my.safetensors").write_text("x")

    def full(*arguments: Any, **more: Any) -> None:
        raise error("No space left on device")

    monkeypatch.setattr(writing, "card", full)
    assert main([str(one_rank / "untied"), str(out), "--force"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("No space left on device")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "out",
        "out/my.safetensors",
    ] * was_there


# -- what is not believed ----------------------------------------------------------------------------------------------


class Malicious:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("form", ["torch.save", "pickle"])
def test_a_shard_with_code_is_refused(run: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran, shard = tmp_path / "ran", checkpoint(run) / SHARD
    payload = {"model.norm.weight": Malicious(ran)}
    if form == "pickle":
        shard.write_bytes(pickle.dumps(payload))
    else:
        torch.save(payload, shard)
    assert main([str(run), str(tmp_path / "out")]) == 2
    says = {
        "torch.save": f"spiral: {shard}: ",
        "pickle": f"missing or cut short: actor/{shard.name}",
    }  # that is no archive of torch's
    assert says[form] in capsys.readouterr().err.splitlines()[-1]
    assert not ran.exists() and not (tmp_path / "out").exists()
    if form == "torch.save":
        torch.load(shard, weights_only=False)
        assert ran.exists()  # so it would have been


def test_a_damaged_shard(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = checkpoint(run) / SHARD
    shard.write_bytes(shard.read_bytes()[:-5000])
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert f"is not whole (1 rank(s)): missing or cut short: actor/{shard.name}" in capsys.readouterr().err


def test_a_flipped_bit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may make a weight of 1e37, which torch reads without a word."""
    shard = checkpoint(run) / SHARD
    flipped = bytearray(shard.read_bytes())
    flipped[len(flipped) // 2] ^= 64
    shard.write_bytes(flipped)
    assert main([str(run), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"damaged: {SHARD}: restore it, or export another one" in error
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["actor/huggingface/notes.json", "actor/huggingface/more", "spiral.json", SHARD])
def test_a_link_out_of_the_checkpoint_is_not_followed(
    run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may lead to a file that its owner would not hand on."""
    link, secret = checkpoint(run) / name, tmp_path / "secret"
    secret.mkdir() if name.endswith("more") else secret.write_bytes(link.read_bytes() if link.exists() else b"{}")
    link.unlink(missing_ok=True)
    link.symlink_to(secret)
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert f"{link}: is a link out of the checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


CONFIGS = [
    b"a: [",
    b"\xff\xfe\x00",
    b"games: 5\nprompt: 3\ntrainer: []\n",
    b"[" * 5000,
    b"a: &a [*a, *a]\nb: *c\n",
    b"7",
    b"games: [{}, 3]\nactor_rollout_ref: {model: {path: [1]}}\nprompt: {template: [1]}\ndata: 5\n",
    b"\t",
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_damaged_config(run: Path, tmp_path: Path, config: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "config.yaml").write_bytes(config)
    status = main([str(run), str(tmp_path / "out"), "--verify"])
    error = capsys.readouterr().err
    assert status in (0, 2) and "Traceback" not in error
    if status == 2:
        assert error.count("\n") == 1 and "config.yaml" in error and "remove it to export without it" in error


@pytest.mark.parametrize("tracker", [b"\xff", b"", b"9" * 5000])
def test_a_damaged_tracker(run: Path, tmp_path: Path, tracker: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / TRACKER).write_bytes(tracker)
    assert main([str(run), str(tmp_path / "out")]) == 0


def test_an_adapters_config_beside_a_whole_model_is_no_part_of_the_export(run: Path, tmp_path: Path) -> None:
    """transformers would load the base model that it names, and not the weights."""
    (checkpoint(run) / HUGGINGFACE / "adapter_config.json").write_text('{"base_model_name_or_path": "another/model"}')
    assert main([str(run), str(tmp_path / "out"), "--verify"]) == 0
    assert not (tmp_path / "out" / "adapter_config.json").exists()


@pytest.mark.parametrize("text", ["[]", '{"model_type": "qwen3", "vocab_size": "x"}', '{"model_type": 5}'])
def test_a_models_config_that_is_none(run: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = checkpoint(run) / HUGGINGFACE / "config.json"
    file.write_text(text)
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert (said := capsys.readouterr().err).startswith(f"spiral: {file}: ") and said.count("\n") == 1


def test_weights_that_do_not_fit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.load(checkpoint(run) / SHARD, weights_only=True)
    weights["other"] = weights.pop("model.norm.weight")
    torch.save(weights, checkpoint(run) / SHARD)
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert "model.norm.weight is missing, other is unknown" in capsys.readouterr().err


# -- as it is used -----------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_the_command(one_rank: Path, tmp_path: Path) -> None:
    command = ("-m", "recipe.spiral.export", str(one_rank / "untied"), str(tmp_path / "out"), "--verify")
    done = in_a_new_process(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1
    again = in_a_new_process(*command)
    assert again.returncode == 2
    assert again.stderr.startswith("spiral: ") and len(again.stderr.splitlines()) == 1


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")
@pytest.mark.timeout(600)
def test_vllm_says_the_same(one_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main([str(one_rank / "untied"), str(out)]) == 0
    code = """
        import sys
        from recipe.spiral.processes.composing import detect_hardware
        if detect_hardware() == "cpu":
            from recipe.spiral.workers.platforms import cpu_patches
            cpu_patches.apply()
        from vllm import LLM, SamplingParams
        llm = LLM(sys.argv[1], max_model_len=64, enforce_eager=True, max_num_seqs=2, gpu_memory_utilization=0.2)
        how = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        [answer] = llm.generate({"prompt_token_ids": [5, 9, 17, 30, 4]}, how, use_tqdm=False)
        print("tokens:", list(answer.outputs[0].token_ids))
    """
    result = in_a_new_process(
        "-c", textwrap.dedent(code), str(out), limit=500, VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0"
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert f"tokens: {greedy(load(out))[5:]}" in result.stdout
