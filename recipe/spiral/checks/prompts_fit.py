"""Checks that the model exists, and that the games' prompts can be made with its tokenizer, and are not too long.

A few games are played at random, and the prompts are made as for the policy: in each game's template and style, with
the whole conversation where the style has one. A longer prompt, which a game may have all the same, ends it.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..games import make
from ..match import Rules, play
from ..opponents.model_files import check_unchanged, is_hub_id
from ..players.base import Position, Response
from ..players.prompts import Encode, Tokenizer, encoder
from ..players.random_player import RandomPlayer
from ..players.seeds import GameKey
from ..processes.attention import FLASH, PACKED, TORCHS
from ..processes.terminal import note
from ..rollouts.schedule import GameShare, parse_games, plays_games
from .errors import ConfigError, refusals, require, written
from .resuming import check_same_model
from .verls import has_critic

#: The number of random games that are played to measure their prompts.
PLAYOUTS = 5
#: Settings of the model that are folders, a file that each has, and what it is.
_FOLDERS = (
    ("path", "config.json", "Hugging Face model"),
    ("hf_config_path", "config.json", "Hugging Face model"),
    ("tokenizer_path", "tokenizer_config.json", "tokenizer of Hugging Face"),
    ("lora_adapter_path", "adapter_config.json", "adapter of PEFT"),
)
#: What ``target_modules``, ``exclude_modules`` and ``target_parameters`` are by default, which goes with every model.
_ALL_LINEAR = {"all-linear", "None"}


def check_folder(config: DictConfig) -> None:
    """Refuse a folder of the model, or of what belongs to it, that is none."""
    for name, file, what in _FOLDERS:
        path = OmegaConf.select(config, setting := f"actor_rollout_ref.model.{name}")
        if path is None or is_hub_id(str(path)):
            continue
        path = os.path.expanduser(str(path))
        if not os.path.isdir(path):
            raise ConfigError(f"{setting}={path}: there is no such folder")
        if not os.path.isfile(os.path.join(path, file)):
            raise ConfigError(f"{setting}={path}: holds no {file}, so it is no {what}")
    if config.actor_rollout_ref.model.lora_adapter_path is not None:
        rank = config.actor_rollout_ref.model.lora_rank
        require(rank > 0, f"actor_rollout_ref.model.lora_rank={rank}: must be the adapter's with lora_adapter_path")


def check_model(config: DictConfig) -> Any:
    """Check that the model exists, and that the prompts of games fit; returns the model's tokenizer.

    Raises:
        ConfigError: no model there, or a prompt is too long.
    """
    check_folder(config)
    path = os.path.expanduser(str(config.actor_rollout_ref.model.path))
    from transformers import AutoConfig, AutoTokenizer

    trusted = config.actor_rollout_ref.model.trust_remote_code
    with refusals():
        check_unchanged(Path(path), f"actor_rollout_ref.model.path={path}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trusted)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"actor_rollout_ref.model.path={path}: its tokenizer cannot be loaded: {reason}") from error
    form = AutoConfig.from_pretrained(path, trust_remote_code=trusted).get_text_config()
    check_same_model(config, form)
    _adapter_fits(config, form)
    if has_critic(config):
        critic = config.critic.model
        started = AutoConfig.from_pretrained(critic.path, trust_remote_code=critic.trust_remote_code).get_text_config()
        check_same_model(config, started, "critic")
        _adapter_fits(config, started, "critic")
    _window_fits(config, form)
    _attention_is_the_engines(config, form)
    _rows_stay_apart(config, form)
    _attention_can_be_replaced(config, form)
    if plays_games(config):
        with refusals():
            check_prompts(config, tokenizer)
    return tokenizer


def _adapter_fits(config: DictConfig, form: Any, part: str = "actor_rollout_ref") -> None:
    """Check that the model has the modules that a new adapter is for, and all of them: PEFT, which is asked in a
    worker, takes those that it finds."""
    model = OmegaConf.select(config, f"{part}.model")
    chosen = {name: model.get(name) for name in ("target_modules", "exclude_modules", "target_parameters")}
    if not model.lora_rank or model.lora_adapter_path is not None or {*map(str, chosen.values())} == _ALL_LINEAR:
        return
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    if type(form) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    chosen = OmegaConf.to_container(OmegaConf.create(chosen), resolve=True)
    targets = chosen["target_modules"]
    with torch.device("meta"), warnings.catch_warnings():
        built = AutoModelForCausalLM.from_config(form)
        layers = {name.split(".")[-1] for name, module in built.named_modules() if isinstance(module, torch.nn.Linear)}
        warnings.filterwarnings("error", module="peft")
        try:
            found = get_peft_model(built, LoraConfig(task_type="CAUSAL_LM", **chosen)).base_model.targeted_module_names
            for target in targets if isinstance(targets, list) else ():
                if not any(f".{name}".endswith(f".{target}") for name in found):
                    raise ValueError(f"no module is called {target}")
        except Exception as error:  # also Python's, of a wrong type or pattern
            asked = ", ".join(f"{part}.model.{name}={written(value)}" for name, value in chosen.items() if value)
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{asked}: {reason}; the model's linear layers: {', '.join(sorted(layers))}") from error


def _attention_is_the_engines(config: DictConfig, form: Any) -> None:
    """Check that PyTorch's attention computes all of the model: it has no bound for the logits (Gemma 2), and leaves it
    out without a word, while vLLM does not."""
    asked = config.actor_rollout_ref.model.override_config.get("attn_implementation")
    if asked in (PACKED, TORCHS) and getattr(form, "attn_logit_softcapping", None) is not None:
        raise ConfigError(
            f"actor_rollout_ref.model.override_config.attn_implementation={asked}: leaves out this model's "
            f"attn_logit_softcapping={form.attn_logit_softcapping}, so that another model would be trained than the "
            "one that plays; take eager, or flash_attention_2"
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


def _attention_can_be_replaced(config: DictConfig, form: Any) -> None:
    """Check that transformers lets this model's attention be another function, and that PyTorch's computes it."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    model = config.actor_rollout_ref.model
    if model.override_config.get("attn_implementation") != PACKED:
        return
    known = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(form), None)
    if known is not None and not (known._supports_attention_backend and known._supports_sdpa):
        raise ConfigError(
            f"actor_rollout_ref.model.override_config.attn_implementation={PACKED}: transformers cannot compute this "
            f"model ({form.model_type}) with it; take use_remove_padding=false and {TORCHS}, or eager where it has no "
            f"{TORCHS}, for critic.model as well"
        )


def _window_fits(config: DictConfig, form: Any) -> None:
    """Check that prompt and response fit into the model's positions. Otherwise vLLM would end responses earlier than
    max_response_length, and they would look complete."""
    limit = getattr(form, "max_position_embeddings", None)
    if limit is None:
        return
    if config.data.max_prompt_length + config.data.max_response_length > limit:
        raise ConfigError(
            f"data.max_prompt_length={config.data.max_prompt_length} + data.max_response_length="
            f"{config.data.max_response_length} is more than the {limit} tokens that the model reads: lower one of them"
        )
    window = config.actor_rollout_ref.rollout.max_model_len
    if window is not None and window > limit:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={window}: the model reads {limit} tokens at most; lower it"
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
            raise ValueError("its chat template leaves out what is said; take prompt.template=r1 or octothinker")
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
