"""The tokens at which vLLM ends a response, for training and for evaluation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omegaconf import DictConfig, open_dict


@cache
def end_tokens(model: str | Path, tokenizer_eos: int | None = None) -> frozenset[int]:
    """The ids of the tokens that end a response of a model, as vLLM takes them.

    These are the end-of-sequence token of the tokenizer and those of ``generation_config.json``. Only where there is
    no such file, those of ``config.json`` count instead of it.

    Args:
        model: a folder or hub id.
        tokenizer_eos: the tokenizer's end-of-sequence token; None: the model's tokenizer is asked.

    Raises:
        ValueError: they are no tokens' ids.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    if tokenizer_eos is None:
        tokenizer_eos = AutoTokenizer.from_pretrained(model, trust_remote_code=False).eos_token_id
    try:
        generation = GenerationConfig.from_pretrained(model)
    except OSError:  # there is none
        try:
            generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(model, trust_remote_code=False))
        except (OSError, ValueError):  # no config either, or one that needs code of its own
            generation = GenerationConfig()
    except TypeError as error:
        raise ValueError(f"{model}: its generation_config.json holds no settings ({error})") from error
    configured = generation.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    known = [token for token in (tokenizer_eos, *ids) if token is not None]
    if not all(isinstance(token, int) for token in known):
        raise ValueError(f"{model}: eos_token_id={configured!r}: must be a token's id, or a list of them")
    return frozenset(known)


def name_end_tokens(config: DictConfig, tokenizer_eos: int | None) -> None:
    """Name all tokens that end a response in the config of every checkpoint, which verl gives the tokenizer's alone.

    Otherwise responses of what was trained would end elsewhere in an evaluation.
    """
    model = config.actor_rollout_ref.model
    ends = end_tokens(model.path, tokenizer_eos)
    if ends - {tokenizer_eos}:
        with open_dict(model.override_config):
            model.override_config.setdefault("eos_token_id", sorted(ends))
