"""Where a response ends, by a model's three files that can say it: the tokens at which vLLM stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from omegaconf import OmegaConf

from recipe.spiral.lab.models.tiny import train_tokenizer
from recipe.spiral.rollouts.end_tokens import end_tokens, name_end_tokens

#: Three tokens that are none of the tokenizer's.
CONFIG, GENERATION = 7, [8, 9]


def model_folder(folder: Path, config: Any, generation: Any) -> tuple[Path, int]:
    """A model's folder without weights, and its tokenizer's end token; ``generation`` False: without that file."""
    from transformers import Qwen3Config

    tokenizer = train_tokenizer(["some text"], max_length=64)
    tokenizer.save_pretrained(folder)
    Qwen3Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=1, vocab_size=len(tokenizer)).save_pretrained(
        folder
    )
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "eos_token_id": config}))
    if generation is not False:
        eos = {} if generation is None else {"eos_token_id": generation}
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, **eos}))
    return folder, tokenizer.eos_token_id


CASES: list[tuple[Any, Any, set[int]]] = [
    (CONFIG, GENERATION, {*GENERATION}),
    (CONFIG, GENERATION[0], {GENERATION[0]}),
    (CONFIG, None, set()),
    (CONFIG, False, {CONFIG}),
    ([CONFIG, 6], False, {CONFIG, 6}),
    (None, False, set()),
]


@pytest.mark.parametrize(("config", "generation", "expected"), CASES)
def test_vllm_stops_at_these(tmp_path: Path, config: Any, generation: Any, expected: set[int]) -> None:
    """What vLLM itself makes of the three files, without an engine."""
    pytest.importorskip("vllm")
    from vllm import SamplingParams
    from vllm.transformers_utils.config import try_get_generation_config

    folder, own = model_folder(tmp_path, config, generation)
    found = try_get_generation_config(str(folder), trust_remote_code=False)
    sampling = SamplingParams()
    sampling.update_from_generation_config(found.to_diff_dict() if found else {}, own)
    assert {sampling.eos_token_id, *(sampling.stop_token_ids or [])} == end_tokens(folder)


@pytest.mark.parametrize("with_generation_config", [True, False], ids=["checkpoint", "snapshot"])
@pytest.mark.parametrize(("config", "generation", "expected"), CASES[:1])
def test_what_a_run_saves_ends_its_responses_where_the_run_did(
    tmp_path: Path, config: Any, generation: Any, expected: set[int], with_generation_config: bool
) -> None:
    """verl notes the tokenizer's token alone in the config, and leaves out a generation config that it cannot save."""
    pytest.importorskip("verl")
    from verl.workers.config import HFModelConfig

    folder, own = model_folder(tmp_path / "model", config, generation)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "architectures": ["Qwen3ForCausalLM"]}))
    run = OmegaConf.create({"actor_rollout_ref": {"model": {"path": str(folder), "override_config": {}}}})
    name_end_tokens(run, own)

    model = HFModelConfig(**OmegaConf.to_container(run.actor_rollout_ref.model))
    saved = tmp_path / "saved"
    model.hf_config.save_pretrained(saved)
    model.tokenizer.save_pretrained(saved)
    if with_generation_config and (folder / "generation_config.json").exists():
        model.generation_config.save_pretrained(saved)
    assert end_tokens(saved) == end_tokens(folder) == expected | {own}
