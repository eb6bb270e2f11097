"""Checks that the model is whole, that its attention sees all of a turn and nothing else, and that games fit into it.

A few games are played at random, and their prompts are made as for the policy: in each game's template and style, with
the whole conversation where the style has one. A longer prompt, which a game may have all the same, ends it.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..games import make
from ..match import Rules, play
from ..opponents.model_files import CONFIGS, check_unchanged, check_whole, is_hub_id, local
from ..players.player import Position, RandomPlayer, Response
from ..players.prompts import Encode, Tokenizer, check_words, encoder
from ..players.seeds import GameKey
from ..processes.attention import FLASH, PACKED, TORCHS
from ..processes.terminal import note
from ..rollouts.schedule import GameShare, parse_games, plays_games
from .errors import ConfigError, refusals, require
from .resumption import check_same_model

#: The number of random games that are played to measure their prompts.
PLAYOUTS = 5
_MODEL = "actor_rollout_ref.model"


def check_folder(config: DictConfig) -> None:
    """Refuse a path that leads to no model, in which transformers would see a hub's id or an unknown form."""
    path = config.actor_rollout_ref.model.path
    require(
        path is not None,
        f"{_MODEL}.path is not set: give a model's folder or hub id, or take model=tiny, which comes with the recipe",
    )
    if not is_hub_id(path):
        require(os.path.isfile(os.path.join(path, "config.json")), f"{_MODEL}.path={path}: no model is there")


def check_model(config: DictConfig) -> Any:
    """Refuse, by a ConfigError, a model that is not whole, and prompts that do not fit; returns its tokenizer."""
    from transformers import AutoConfig, AutoTokenizer

    check_folder(config)
    model = config.actor_rollout_ref.model
    own = "path" if model.tokenizer_path is None else "tokenizer_path"
    trusted = bool(model.trust_remote_code)
    with refusals():
        if not is_hub_id(model.path):
            folder = Path(model.path)
            if any(folder.glob("*.safetensors*")) or not any(folder.glob("*.bin")):
                check_whole(folder, f"{_MODEL}.path")
            check_unchanged(folder, f"{_MODEL}.path={folder}")
        local(str(model.path), CONFIGS, f"{_MODEL}.path=")  # transformers would ask the hub six times, for a minute
        try:
            tokenizer = AutoTokenizer.from_pretrained(os.path.expanduser(model[own]), trust_remote_code=trusted)
            form = AutoConfig.from_pretrained(model.path, trust_remote_code=trusted).get_text_config()
        except OSError as error:
            raise ConfigError(f"{_MODEL}.{own}={model[own]}: {str(error).strip().splitlines()[0]}") from error
        if model.custom_chat_template is not None:  # as verl's workers have it
            tokenizer.chat_template = model.custom_chat_template
        check_same_model(config)
        _window_fits(config, form)
        _rows_stay_apart(config, form)
        _attention_is_whole(config, form)
        check_words(tokenizer, f"{_MODEL}.{own}={model[own]}")
        _are_embedded([tokenizer.eos_token_id, tokenizer.pad_token_id], config, form)
        if plays_games(config):
            check_prompts(config, tokenizer, form)
    return tokenizer


def _window_fits(config: DictConfig, form: Any) -> None:
    """vLLM would end responses earlier than max_response_length, and they would look complete."""
    limit = getattr(form, "max_position_embeddings", None) or math.inf
    window = config.actor_rollout_ref.rollout.max_model_len
    require(
        window <= limit,
        f"actor_rollout_ref.rollout.max_model_len={window}: this model reads {limit} tokens; lower it, or "
        "data.max_prompt_length and data.max_response_length, whose sum it is by default",
    )


def _rows_stay_apart(config: DictConfig, form: Any) -> None:
    """A layer with a state would carry it from one packed row into the next. Those of Qwen3.5 with flash-attn are left
    to verl, which tells them where rows begin."""
    model = config.actor_rollout_ref.model
    told = model.override_config.get("attn_implementation", FLASH) == FLASH and form.model_type.startswith("qwen3_5")
    others = set(getattr(form, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    require(
        not model.use_remove_padding or told or not others,
        f"{_MODEL}.use_remove_padding=true: this model's layers of the kind {', '.join(sorted(others))} would look "
        f"from one turn into the next where turns are packed; take false, and attn_implementation={TORCHS}",
    )


def _attention_is_whole(config: DictConfig, form: Any) -> None:
    """PyTorch's attention leaves out a bound for the logits (Gemma 2), and what is packed leaves out more, such as
    sinks (gpt-oss), without a word; vLLM does not."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    asked = config.actor_rollout_ref.model.override_config.get("attn_implementation")
    setting = f"{_MODEL}.override_config.attn_implementation={asked}"
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
        f"and {TORCHS}, or eager where it has no {TORCHS}",
    )


def _are_embedded(tokens: Iterable[int | None], config: DictConfig, form: Any) -> None:
    """A token beyond the embedding fails in a worker, without its name."""
    rows = getattr(form, "vocab_size", math.inf)
    beyond = [token for token in tokens if token is not None and token >= rows]
    require(
        not beyond,
        f"{_MODEL}.path={config.actor_rollout_ref.model.path}: its tokenizer has the token {max(beyond, default=0)}, "
        f"and its weights have {rows}; take the tokenizer that the model was trained with",
    )


def check_prompts(config: DictConfig, tokenizer: Tokenizer, form: Any = None) -> None:
    """Check that every game's prompts can be made, and that neither they nor a plain answer are too long; otherwise
    ValueError says what to do."""
    entries = list(config.games) + list(config.validation.games or [])
    for share in dict.fromkeys(share for entry in entries for share in parse_games([entry])):
        measured = _measured(share, _Measure(_encode(share, config, tokenizer), tokenizer), config)
        if form is not None:
            _are_embedded([measured.highest], config, form)
        longest, answer = config.data.max_prompt_length, config.data.max_response_length
        mend = "raise it, or leave the game out"
        require(
            measured.shortest < answer or measured.shortest == math.inf,
            f"data.max_response_length={answer}: an answer of {share.id} has {measured.shortest} tokens and its end "
            f"with this tokenizer; {mend}",
        )
        if (share.style or config.prompt.style) == "dialogue":
            mend = "raise it, set rules.turn_cap, give the game style: state, or leave it out"
        require(
            measured.longest <= longest,
            f"data.max_prompt_length={longest}: {share.id} has prompts of {measured.longest} tokens and more with this "
            f"tokenizer, and prompts are never cut; {mend}",
        )


def _encode(share: GameShare, config: DictConfig, tokenizer: Tokenizer) -> Encode:
    """The function that makes the game's prompts, after a trial on empty turns."""
    path = config.actor_rollout_ref.model.path
    kwargs: Any = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    template, style = share.template or config.prompt.template, share.style or config.prompt.style
    encode = encoder(tokenizer, template, style, **kwargs)
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
    """Plays at random, and keeps the number of tokens of the longest prompt and the shortest answer that a policy would
    have had, and the highest token in them."""

    def __init__(self, encode: Encode, tokenizer: Tokenizer) -> None:
        self._encode, self._tokenizer = encode, tokenizer
        self.longest, self.shortest, self.highest = 0, math.inf, 0

    async def respond(self, position: Position) -> Response:
        prompt = self._encode(position.observation, position.history)
        self.longest = max(self.longest, len(prompt))
        response = await super().respond(position)
        answer = self._tokenizer.encode(response.text, add_special_tokens=False)
        self.shortest = min(self.shortest, len(answer))
        self.highest = max(self.highest, *prompt, *answer)
        return response


def _measured(share: GameShare, player: _Measure, config: DictConfig) -> _Measure:
    """The player, after some games."""
    rules = Rules.from_config(config.rules)
    try:
        for seed in range(PLAYOUTS):
            key = GameKey("check", 0, 0, seed)
            asyncio.run(play(key, share.id, make(share.id, seed), (player, player), (), rules))
    except Exception as error:  # TextArena's environments, and players of them at random, raise anything
        note(
            f"{share.id} could be played at random in part only, with prompts of {player.longest} tokens of "
            f"data.max_prompt_length={config.data.max_prompt_length}: {error}"
        )
    return player
