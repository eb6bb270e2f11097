"""Whether the model's path is one, and whether the games' prompts fit."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..games import make
from ..prompts import get_template
from ..schedule import parse_games
from .errors import ConfigError

#: Games that are played to see whether their prompts fit.
_PLAYOUTS = 20


def check_model(config: DictConfig) -> Any:
    """That the model's path is one, and that the games' prompts fit.

    Returns:
        The model's tokenizer.

    Raises:
        ConfigError: no model there, or a prompt is too long.
    """
    path = os.path.expanduser(str(config.actor_rollout_ref.model.path))
    local = os.path.isdir(path)
    if not local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: there is no such folder")
    if local and not os.path.isfile(os.path.join(path, "config.json")):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: holds no config.json, so it is no Hugging Face model")
    from jinja2 import TemplateError
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"actor_rollout_ref.model.path={path}: its tokenizer cannot be loaded: {reason}") from error
    template = get_template(config.prompt.template)
    kwargs = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    assert isinstance(kwargs, dict)
    try:
        template.encode(tokenizer, "", **kwargs)
    except (ValueError, TemplateError) as error:
        raise ConfigError(
            f"prompt.template={config.prompt.template}: does not go with {path}: {error}; a model without a chat "
            "template takes prompt.template=r1 or octothinker"
        ) from error
    _window_fits(config, path)
    _prompts_fit(config, lambda text: len(template.encode(tokenizer, text, **kwargs)))
    return tokenizer


def _window_fits(config: DictConfig, path: str) -> None:
    """vLLM would give a response less room than max_response_length, which would look like an end of its own."""
    from transformers import AutoConfig

    model = AutoConfig.from_pretrained(path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code)
    limit = getattr(model.get_text_config(), "max_position_embeddings", None)
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


def _prompts_fit(config: DictConfig, count_tokens: Callable[[str], int]) -> None:
    limit = config.data.max_prompt_length
    entries = list(config.games) + list(config.validation.games or [])
    for game_id in sorted({share.id for entry in entries for share in parse_games([entry])}):
        for seed in range(_PLAYOUTS):
            game, rng = make(game_id, seed), random.Random(seed)
            while not game.is_terminal:
                tokens = count_tokens(game.observation(game.current_player))
                if tokens > limit:
                    raise ConfigError(
                        f"data.max_prompt_length={limit}: {game_id} has prompts of {tokens} tokens and more with this "
                        "tokenizer, and prompts are never cut; raise it, or leave the game out"
                    )
                game.step(game.random_action(rng))
