"""Checks that transformers and PEFT read the checkpoint's weights from the new folder, and shows an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .lora import Adapter, adapter_weights, base_model, import_peft
from .source import Source
from .weights import Weights, empty_model

#: The length of the continuation that ``--verify`` shows.
_NEW_TOKENS = 64


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""


def verify_model(folder: Path, model: Any) -> Any:
    """The model as transformers reads it from ``folder``.

    Raises:
        Different: a weight is not exactly that of ``model``.
    """
    from transformers import AutoModelForCausalLM

    loaded, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, trust_remote_code=False)
    if wrong := [f"{kind}: {names}" for kind, names in report.items() if names]:
        raise Different(f"transformers does not read it as it is: {'; '.join(wrong)}")
    _same(loaded.state_dict(), model.state_dict())
    return loaded


def verify_adapter(folder: Path, adapter: Adapter, source: Source, weights: Weights) -> Any | None:
    """The model with the adapter as PEFT reads it from ``folder``; None if the checkpoint holds no base model.

    Raises:
        Different: the adapter is not what the checkpoint holds.
    """
    peft = import_peft()
    base = base_model(source, weights)
    some = base if base is not None else empty_model(source.huggingface).to_empty(device="cpu")
    model = peft.PeftModel.from_pretrained(some, folder, autocast_adapter_dtype=False)
    _same(adapter_weights(model), adapter.weights)
    return model if base is not None else None


def _same(loaded: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    if loaded.keys() != expected.keys():
        raise Different(f"other weights than expected: {', '.join(sorted(loaded.keys() ^ expected.keys())[:5])}")
    for name, weight in expected.items():
        if loaded[name].dtype != weight.dtype or not torch.equal(loaded[name], weight):
            raise Different(f"{name} is not what the checkpoint holds")


def continuation(model: Any, folder: Path, source: Source) -> str:
    """The model's answer to the first position of the run's first game, at temperature 0."""
    from transformers import AutoTokenizer

    from ..games import make
    from ..players.prompts import get_template

    template, games = source.setting("prompt.template"), source.games()
    if template is None or not games:
        return "no continuation: the run's config names no prompt template"
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    try:
        game = make(games[0], 0)
        kwargs = source.setting("data.apply_chat_template_kwargs") or {}
        prompt = get_template(template).encode(tokenizer, game.observation(game.current_player), **kwargs)
    except (ValueError, TypeError, ImportError) as error:
        return f"no continuation: {error}"
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        answer = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=_NEW_TOKENS
        )[0, len(prompt) :]
    return f"{games[0]}, temperature 0: {tokenizer.decode(answer)!r}"
