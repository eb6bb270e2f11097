"""Checks that the model exists, and that the prompts of games and questions fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..opponents.pool_sources import check_unchanged
from ..running.composing import TORCHS
from ..serving import benchmarks
from .errors import ConfigError
from .prompts import check_prompts
from .tasks import asks_questions, check_question_prompts


def check_model(config: DictConfig) -> Any:
    """Check that the model exists, and that the prompts of games and questions fit; returns the model's tokenizer.

    Raises:
        ConfigError: no model there, or a prompt is too long.
    """
    path = os.path.expanduser(str(config.actor_rollout_ref.model.path))
    local = os.path.isdir(path)
    if not local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: there is no such folder")
    if local and not os.path.isfile(os.path.join(path, "config.json")):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: holds no config.json, so it is no Hugging Face model")
    from transformers import AutoTokenizer

    try:
        check_unchanged(Path(path), f"actor_rollout_ref.model.path={path}")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"actor_rollout_ref.model.path={path}: its tokenizer cannot be loaded: {reason}") from error
    form = _form(config, path)
    _window_fits(config, form)
    _attention_is_the_engines(config, form)
    try:
        (check_question_prompts if asks_questions(config) else check_prompts)(config, tokenizer)
        benchmarks.check_prompts(config, tokenizer)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return tokenizer


def _form(config: DictConfig, path: str) -> Any:
    """The model's own config, of its text part."""
    from transformers import AutoConfig

    trusted = config.actor_rollout_ref.model.trust_remote_code
    return AutoConfig.from_pretrained(path, trust_remote_code=trusted).get_text_config()


def _attention_is_the_engines(config: DictConfig, form: Any) -> None:
    """Check that PyTorch's attention computes all of the model: it has no bound for the logits (Gemma 2), and leaves it
    out without a word, while vLLM does not."""
    asked = config.actor_rollout_ref.model.override_config.get("attn_implementation")
    if asked == TORCHS and getattr(form, "attn_logit_softcapping", None) is not None:
        raise ConfigError(
            f"actor_rollout_ref.model.override_config.attn_implementation={asked}: leaves out this model's "
            f"attn_logit_softcapping={form.attn_logit_softcapping}, so that another model would be trained than the "
            "one that plays; take eager, or flash_attention_2"
        )


def _window_fits(config: DictConfig, form: Any) -> None:
    """Check that prompt and response fit into the model's positions. Otherwise vLLM would end responses earlier than
    max_response_length, and they would look complete."""
    limit = getattr(form, "max_position_embeddings", None)
    needed = config.data.max_prompt_length + config.data.max_response_length
    if limit is not None and needed > limit:
        raise ConfigError(
            f"data.max_prompt_length={config.data.max_prompt_length} + data.max_response_length="
            f"{config.data.max_response_length} is more than the {limit} tokens that the model reads: lower one of them"
        )
    window = config.actor_rollout_ref.rollout.max_model_len
    if limit is not None and window is not None and window > limit:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={window}: the model reads {limit} tokens at most; lower it"
        )
