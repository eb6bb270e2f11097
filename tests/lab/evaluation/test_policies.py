"""Who is evaluated: what the config's lists come to; and a policy's scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from recipe.spiral.lab.evaluation import matches, policy_weights
from recipe.spiral.lab.evaluation import policy_entries as entries
from recipe.spiral.lab.evaluation.engines import Served, arguments
from recipe.spiral.lab.evaluation.matches import Seating
from recipe.spiral.lab.evaluation.policies import Asked, Policy
from recipe.spiral.lab.evaluation.policy_entries import parse
from recipe.spiral.lab.evaluation.policy_weights import load
from recipe.spiral.lab.models import EMBEDDED
from tests.lab.evaluation.made import adapter, engine_settings, model, settings
from tests.made_configs import config
from tests.players import chat_forms


def one(entry: Any, tmp_path: Path, **more: Any) -> Policy:
    (found,) = parse([entry], tmp_path / "cache", **more)
    return found


def test_kinds_without_weights(tmp_path: Path) -> None:
    entries = ["random", {"kind": "random", "name": "other"}, "perfect", {"kind": "alphabeta", "depth": 2}]
    found = parse(entries, tmp_path)
    assert [policy.name for policy in found] == ["random", "other", "perfect", "alphabeta-2"]
    assert all(policy.model is None for policy in found)
    assert found[3].identity == {"kind": "alphabeta", "settings": {"depth": 2}}
    assert found[2].unable("TicTacToe") is None and "perfect player" in (found[2].unable("ConnectFour") or "")
    assert found[3].unable("ConnectFour") is None and found[3].unable("TicTacToe")


def test_a_model_and_an_adapter_are_found_out(tmp_path: Path) -> None:
    base = model(tmp_path / "base")
    lora = adapter(tmp_path / "lora", base)
    assert one(str(base), tmp_path).model == base
    found = one({"path": str(lora), "name": "mine", "template": "qwen3"}, tmp_path)
    assert (found.name, found.kind, found.model, found.adapter) == ("mine", "adapter", base, lora)
    assert found.prompt("Nim") == ("qwen3", "state")
    other = model(tmp_path / "other")
    assert one({"kind": "adapter", "path": str(lora), "base": str(other)}, tmp_path).model == other


def test_a_models_lengths_are_those_that_it_has_positions_for(tmp_path: Path) -> None:
    base = model(tmp_path / "base")
    for text, lengths in (
        ("{}", (2048, 4096)),
        ('{"max_position_embeddings": 5000}', (2048, 2952)),
        ('{"max_position_embeddings": 1024, "rope_scaling": null}', (512, 512)),
        ('{"max_position_embeddings": 1024, "rope_scaling": {"factor": 8.0}}', (2048, 4096)),
    ):
        (base / "config.json").write_text(text)
        assert one(str(base), tmp_path).lengths == lengths


def test_an_embedded_model_has_its_config_groups_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model(tmp_path / "model")
    made: list[str] = []
    monkeypatch.setattr(entries, "embedded", lambda name: made.append(name) or folder)
    group = config(tmp_path, model="smollm2_135m")
    smollm2 = one("smollm2_135m", tmp_path)
    assert smollm2.template == group.prompt.template == "chat_examples"
    assert smollm2.lengths == (group.data.max_prompt_length, group.data.max_response_length)
    assert one("smollm2_135m", tmp_path, asked=Asked("octothinker")).template == "octothinker"
    assert one({"kind": "smollm2_135m", "template": "qwen3"}, tmp_path).template == "qwen3"
    assert {one(name, tmp_path).lengths for name in ("tiny", "tiny_lines")} == {(480, 16)}
    assert made == ["smollm2_135m"] * 3 + ["tiny", "tiny_lines"]
    assert {one(name, tmp_path).template for name in EMBEDDED} == {"chat", "chat_examples"}


def test_a_run_is_one_policy_a_snapshot(tmp_path: Path) -> None:
    run = tmp_path / "kuhn"
    for step in (0, 5, 10, 15):
        model(run / "pool" / f"step_{step:06d}", step)
    (run / "config.yaml").write_text("prompt: {template: qwen3, style: dialogue}\n")
    found = parse([{"path": str(run), "start": 5, "interval": 10}], tmp_path)
    assert [policy.name for policy in found] == ["kuhn/step_000005", "kuhn/step_000015"]
    assert {policy.prompt("Nim") for policy in found} == {("qwen3", "dialogue")}
    named = one({"kind": "run", "path": str(run), "step": 10, "name": "r", "style": "state"}, tmp_path)
    assert (named.name, named.prompt("Nim")[1]) == ("r/step_000010", "state")


def test_an_export_is_asked_as_its_run_asked(tmp_path: Path) -> None:
    """Also one in a folder of exports; what the entry or the evaluation sets comes first."""
    exports = tmp_path / "exports"
    settings = (
        "games: [TicTacToe, {id: Nim, template: octothinker}]\nprompt: {template: qwen3, style: state}\n"
        "data: {max_prompt_length: 300, max_response_length: 40}\n"
    )
    for step in (10, 20):
        (model(exports / f"step_{step}", step) / "spiral.yaml").write_text(settings)
    found = one(str(exports / "step_20"), tmp_path)
    assert (found.prompt("TicTacToe"), found.prompt("Nim")) == (("qwen3", "state"), ("octothinker", "state"))
    assert found.lengths == (300, 40)
    assert one(str(exports / "step_20"), tmp_path, asked=Asked("chat")).prompt("Nim") == ("chat", "state")
    assert one({"path": str(exports / "step_20"), "template": "chat"}, tmp_path).template == "chat"
    both = parse([str(exports)], tmp_path)
    assert [(policy.name, policy.template) for policy in both] == [
        ("exports/step_000010", "qwen3"),
        ("exports/step_000020", "qwen3"),
    ]


def test_a_policy_is_asked_with_what_its_run_gave_the_chat_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation's own comes first."""
    run, tokenizer = tmp_path / "run", chat_forms.tokenizer("qwen3")
    monkeypatch.setattr(matches, "read_tokenizer", lambda folder: tokenizer)
    model(run / "pool" / "step_000001")
    (run / "config.yaml").write_text("data: {apply_chat_template_kwargs: {enable_thinking: false}}\n")
    for told, thinks in (({}, False), ({"enable_thinking": True}, True)):
        policy = one(str(run), tmp_path, asked=Asked(chat_template_kwargs=told))
        seat = Seating({policy.name: policy}, settings(tmp_path), lambda policy: cast(Any, None))
        asked = tokenizer.decode(list(seat.encode(policy, "Nim")("the position", ())))
        assert policy.identity["chat_template_kwargs"] == {"enable_thinking": thinks}
        assert asked.endswith("</think>\n\n") is not thinks


def test_checkpoints_are_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "global_step_3"
    (checkpoint / "actor").mkdir(parents=True)
    shard = checkpoint / "actor" / "model_world_size_1_rank_0.pt"
    shard.write_bytes(b"weights")
    exported: list[Path] = []

    def export(source: Path, target: Path) -> str:
        exported.append(source)
        model(target)
        return ""

    monkeypatch.setattr("recipe.spiral.export.writing.export", export)
    first = policy_weights.exported(checkpoint, tmp_path / "cache")
    assert policy_weights.exported(checkpoint, tmp_path / "cache") == first and exported == [checkpoint]
    (first / "model.safetensors").write_bytes(b"cut short")
    policy_weights.exported(checkpoint, tmp_path / "cache")
    assert len(exported) == 2, "a broken one is made again"
    shard.write_bytes(b"trained on")
    policy_weights.exported(checkpoint, tmp_path / "cache")
    assert len(exported) == 3, "and so is one of other weights"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"kind": "chess"}, "unknown; known kinds"),
        ({"kind": "run", "path": "/no/such"}, "there is no such folder"),
        ({"path": "{model}", "depth": 3}, "depth: unknown for kind 'auto'"),
        ({"path": "{model}", "template": "qwen33"}, "qwen33"),
        ({"path": "{lora}"}, "names no base model"),
        ({"path": "{cut}"}, "cut short"),
        ({"path": "{empty}"}, "holds nothing"),
        ({"kind": "run", "path": "{run}", "step": 2}, "step=2: there is none; the next is of step 3"),
        ({"kind": "perfect", "alpha": 2}, "alpha"),
        (3, "must be a kind, a path"),
    ],
)
def test_bad_entries_are_refused(tmp_path: Path, entry: Any, told: str) -> None:
    places = {"model": model(tmp_path / "model"), "lora": adapter(tmp_path / "lora"), "cut": model(tmp_path / "cut")}
    (places["cut"] / "model.safetensors").write_bytes(b"cut")
    places["empty"] = tmp_path / "empty"
    places["empty"].mkdir()
    places["run"] = tmp_path / "run"
    for step in (1, 3):
        model(places["run"] / "pool" / f"step_{step}")
    if isinstance(entry, dict):
        entry = {k: v.format(**places) if isinstance(v, str) else v for k, v in entry.items()}
    with pytest.raises(ValueError, match=told) as error:
        parse([entry], tmp_path / "cache")
    named = (entry.get("path") or entry.get("kind") or entry) if isinstance(entry, dict) else entry
    assert str(error.value).startswith("policies: ") and str(named) in str(error.value)


@pytest.mark.parametrize(
    ("stored", "card", "dtype"),
    [("float32", (8, 0), "bfloat16"), ("float32", (7, 5), "float16"), ("float32", None, "auto")],
)
def test_scores_are_computed_in_what_vllm_plays_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, card: tuple[int, int] | None, dtype: str
) -> None:
    given: list[str] = []

    def loaded(folder: Path, dtype: str, **_: object) -> torch.nn.Module:
        given.append(dtype)
        return torch.nn.Module()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: card is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: card)
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: module)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", loaded)
    (tmp_path / "config.json").write_text(json.dumps({"dtype": stored}))
    load(tmp_path)
    assert given == [dtype] == [arguments(Served(tmp_path), 8, engine_settings())["dtype"]]
    assert arguments(Served(tmp_path), 8, engine_settings(dtype="float32"))["dtype"] == "float32"
