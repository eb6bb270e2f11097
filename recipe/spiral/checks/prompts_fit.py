"""Checks that the model exists, and that the games' prompts can be made with its tokenizer, and are not too long.

A few games are played at random, and the prompts are made as for the policy: in each game's template and style, with
the whole conversation where the style has one. A longer prompt, which a game may have all the same, ends it.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..games import make
from ..match import Rules, play
from ..opponents.model_files import CONFIGS, check_unchanged, is_hub_id, local
from ..players.player import Position, Response
from ..players.prompts import Encode, Tokenizer, check_words, encoder
from ..players.random_player import RandomPlayer
from ..players.seeds import GameKey
from ..processes.attention import FLASH, PACKED, TORCHS
from ..processes.terminal import note
from ..rollouts.schedule import GameShare, parse_games, plays_games
from .errors import ConfigError, refusals, require, written
from .resumption import check_same_model
from .verls import has_critic

#: The number of random games that are played to measure their prompts.
PLAYOUTS = 5
#: What of a model's config decides the sizes of its weights.
_SIZES = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "num_experts", "num_local_experts", "moe_intermediate_size"),
)
#: Settings of models that are folders, a file that each has, and what it is.
_FOLDERS = (
    ("actor_rollout_ref.model.path", "config.json", "Hugging Face model"),
    ("critic.model.path", "config.json", "Hugging Face model"),
    ("actor_rollout_ref.model.hf_config_path", "config.json", "Hugging Face model"),
    ("actor_rollout_ref.model.tokenizer_path", "tokenizer_config.json", "tokenizer of Hugging Face"),
    ("actor_rollout_ref.model.lora_adapter_path", "adapter_config.json", "adapter of PEFT"),
)


def check_folder(config: DictConfig) -> None:
    """Refuse a folder of the model, or of what belongs to it, that is none."""
    for setting, file, what in _FOLDERS:
        path = OmegaConf.select(config, setting)
        if path is None or is_hub_id(str(path)):
            continue
        path = os.path.expanduser(str(path))
        require(os.path.isdir(path), f"{setting}={path}: there is no such folder")
        require(os.path.isfile(os.path.join(path, file)), f"{setting}={path}: holds no {file}, so it is no {what}")
    if config.actor_rollout_ref.model.lora_adapter_path is not None:
        rank = config.actor_rollout_ref.model.lora_rank
        require(rank > 0, f"actor_rollout_ref.model.lora_rank={rank}: must be the adapter's with lora_adapter_path")


def check_model(config: DictConfig) -> Any:
    """Refuse, by a ConfigError, a model that is not there, and prompts that do not fit; returns its tokenizer."""
    check_folder(config)
    path = os.path.expanduser(str(config.actor_rollout_ref.model.path))
    from transformers import AutoTokenizer

    with refusals():
        check_unchanged(Path(path), f"actor_rollout_ref.model.path={path}")
    model = config.actor_rollout_ref.model
    own = "path" if model.tokenizer_path is None else "tokenizer_path"
    tokenizer = _loaded(AutoTokenizer, config, "actor_rollout_ref", "tokenizer", own)
    if model.custom_chat_template is not None:  # as verl's workers have it
        tokenizer.chat_template = model.custom_chat_template
    form = _form(config, "actor_rollout_ref")
    if has_critic(config):
        _form(config, "critic")
    _window_fits(config, form)
    _rows_stay_apart(config, form)
    _attention_fits(config, form)
    with refusals():
        check_words(tokenizer, f"actor_rollout_ref.model.{own}={model[own]}")
        if plays_games(config):
            check_prompts(config, tokenizer)
    return tokenizer


def _loaded(kind: Any, config: DictConfig, part: str, what: str, key: str = "path") -> Any:
    """What transformers loads of the policy's or the critic's model."""
    path, setting, trusted = config[part].model[key], f"{part}.model.{key}", config[part].model.trust_remote_code
    with refusals():  # transformers would ask the hub six times, for a minute
        local(str(path), CONFIGS, f"{setting}=")
    try:
        return kind.from_pretrained(os.path.expanduser(path), trust_remote_code=trusted)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{setting}={path}: its {what} cannot be loaded: {reason}") from error


def _form(config: DictConfig, part: str) -> Any:
    """The config of the policy's or the critic's model, after a look at what is asked for beside it."""
    from transformers import AutoConfig

    whole = _loaded(AutoConfig, config, part, "config")
    _overrides_fit(config, config[part].model.override_config, whole, f"{part}.model.override_config")
    form = whole.get_text_config()
    if part == "actor_rollout_ref":
        check_same_model(config)
    _adapter_fits(config, form, part)
    return form


def _overrides_fit(config: DictConfig, given: Mapping[str, Any], form: Any, place: str) -> None:
    """Check that what changes the model's config can: verl sets any attribute, also one that nobody reads."""
    from transformers import PretrainedConfig
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    known = ("eager", PACKED, *(name for name in ALL_ATTENTION_FUNCTIONS if "|" not in name))
    for key, value in given.items():
        setting, own = f"{place}.{key}={written(value)}", getattr(form, key, None)
        if key == "attn_implementation":  # one of the hub's, or of a module of the user's, cannot be looked up here
            others = "/" in str(value) or not isinstance(config.actor_rollout_ref.model.external_lib, str)
            require(value in known or others, f"{setting}: unknown; known: {', '.join(known)}")
        elif isinstance(value, Mapping) and isinstance(own, PretrainedConfig):
            _overrides_fit(config, value, own, f"{place}.{key}")
        else:
            near = "".join(f"; did you mean {name}?" for name in get_close_matches(key, form.to_dict(), n=1))
            require(hasattr(form, key), f"{setting}: the config of this model has no {key}{near}")
            fits = not isinstance(value, Mapping) and (key not in _SIZES or value == own)
            require(fits, f"{setting}: the model has {own}; leave this out, or change the config.json of a copy of it")


def _adapter_fits(config: DictConfig, form: Any, part: str) -> None:
    """Check that the model has each module that is named for a new adapter: PEFT, in a worker, takes those that it
    finds, and refuses a start only where it finds none."""
    model = OmegaConf.select(config, f"{part}.model")
    named = {name: model.get(name) for name in ("target_modules", "exclude_modules")}
    named = {name: modules for name, modules in named.items() if OmegaConf.is_list(modules)}
    if not model.lora_rank or model.lora_adapter_path is not None or not named:
        return
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    if type(form) in MODEL_FOR_CAUSAL_LM_MAPPING:
        with torch.device("meta"):
            found = [f".{name}" for name, _ in AutoModelForCausalLM.from_config(form).named_modules()]
        for name, modules in named.items():
            for module in modules:
                there = any(each.endswith(f".{module}") for each in found)
                require(there, f"{part}.model.{name}={written(modules)}: the model has no module {module}")


def _attention_fits(config: DictConfig, form: Any) -> None:
    """Check that the model's attention can be the one that is asked for, and that it computes all of the model:
    PyTorch's has no bound for the logits (Gemma 2), and leaves it out without a word, while vLLM does not."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    asked = config.actor_rollout_ref.model.override_config.get("attn_implementation")
    setting = f"actor_rollout_ref.model.override_config.attn_implementation={asked}"
    bound = getattr(form, "attn_logit_softcapping", None)
    require(
        asked not in (PACKED, TORCHS) or bound is None,
        f"{setting}: leaves out this model's attn_logit_softcapping={bound}, so that another model would be trained "
        "than the one that plays; take eager, or flash_attention_2",
    )
    known = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(form), None)
    require(
        asked != PACKED or known is None or (known._supports_attention_backend and known._supports_sdpa),
        f"{setting}: transformers cannot compute this model ({form.model_type}) with it; take use_remove_padding=false "
        f"and {TORCHS}, or eager where it has no {TORCHS}, for critic.model as well",
    )


def _rows_stay_apart(config: DictConfig, form: Any) -> None:
    """Check that only attention looks at other tokens: a layer with a state would carry it from one packed row into the
    next. Those of Qwen3.5 with flash-attn are left to verl, which tells them where rows begin."""
    model = config.actor_rollout_ref.model
    asked = model.override_config.get("attn_implementation", FLASH)
    told = asked == FLASH and form.model_type.startswith("qwen3_5")
    if not model.use_remove_padding or told:
        return
    if others := set(getattr(form, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f"actor_rollout_ref.model.use_remove_padding=true: this model's layers of the kind "
            f"{', '.join(sorted(others))} would look from one turn into the next where turns are packed; take "
            f"use_remove_padding=false and override_config.attn_implementation={TORCHS}, for critic.model as well"
        )


def _window_fits(config: DictConfig, form: Any) -> None:
    """Check that prompt and response fit into the model's positions. Otherwise vLLM would end responses earlier than
    max_response_length, and they would look complete."""
    limit = getattr(form, "max_position_embeddings", None) or math.inf
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    require(
        prompt + response <= limit,
        f"data.max_prompt_length={prompt} + data.max_response_length={response} is more than the {limit} tokens that "
        "the model reads: lower one of them",
    )
    window = config.actor_rollout_ref.rollout.max_model_len
    require(
        window is None or window <= limit,
        f"actor_rollout_ref.rollout.max_model_len={window}: the model reads {limit} tokens at most; lower it",
    )


def check_prompts(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Check that every game's prompts can be made, and that none is too long; otherwise ValueError says what to do."""
    entries = list(config.games) + list(config.validation.games or [])
    for share in dict.fromkeys(share for entry in entries for share in parse_games([entry])):
        _game_fits(share, _encode(share, config, tokenizer), config)


def _encode(share: GameShare, config: DictConfig, tokenizer: Tokenizer) -> Encode:
    """The function that makes the game's prompts, after a trial on empty turns."""
    path = config.actor_rollout_ref.model.path
    kwargs = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    assert isinstance(kwargs, dict)
    template, style = share.template or config.prompt.template, share.style or config.prompt.style
    encode = encoder(tokenizer, template, style, **{str(name): value for name, value in kwargs.items()})
    setting = f"prompt.template={template}" if share.template is None else f"games: {share.id}: template={template}"
    try:
        if encode("", ()) == encode("what is seen", ()):
            raise ValueError("its chat template leaves out what is said; take prompt.template=octothinker")
    except ValueError as error:
        raise ValueError(f"{setting}: does not go with {path}: {error}") from error
    if style == "state":
        return encode
    setting = f"prompt.style={style}" if share.style is None else f"games: {share.id}: style={style}"
    try:
        kept = encode("", (("", "[a]"),)) != encode("", (("", "[b] [b]"),))
    except ValueError as error:
        raise ValueError(f"{setting}: does not go with {path}: {error.__cause__ or error}; take style state") from error
    if not kept:
        raise ValueError(f"{setting}: the chat template of {path} leaves earlier answers out; take style state")
    return encode


class _Measure(RandomPlayer):
    """Plays at random, and keeps the number of tokens of the longest prompt that a policy would have had."""

    def __init__(self, encode: Encode) -> None:
        self._encode, self.longest = encode, 0

    async def respond(self, position: Position) -> Response:
        self.longest = max(self.longest, len(self._encode(position.observation, position.history)))
        return await super().respond(position)


def _game_fits(share: GameShare, encode: Encode, config: DictConfig) -> None:
    limit, rules, player = config.data.max_prompt_length, Rules.from_config(config.rules), _Measure(encode)
    try:
        for seed in range(PLAYOUTS):
            key = GameKey("check", 0, 0, seed)
            asyncio.run(play(key, share.id, make(share.id, seed), (player, player), (), rules))
    except Exception as error:  # TextArena's environments, and players of them at random, raise anything
        note(
            f"data.max_prompt_length={limit}: {share.id} could be played at random in part only, with prompts of "
            f"{player.longest} tokens: {error}"
        )
    if player.longest > limit:
        mend = "raise it, or leave the game out"
        if (share.style or config.prompt.style) == "dialogue":
            mend = "raise it, set rules.turn_cap, give the game style: state, or leave it out"
        raise ValueError(
            f"data.max_prompt_length={limit}: {share.id} has prompts of {player.longest} tokens and more with this "
            f"tokenizer, and prompts are never cut; {mend}"
        )
