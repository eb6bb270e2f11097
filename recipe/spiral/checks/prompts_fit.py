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

from ..config import require
from ..games import make
from ..match import Rules, play
from ..opponents.model_files import CONFIGS, check_unchanged, check_whole, is_hub_id, local
from ..players.player import Position, RandomPlayer, Response
from ..players.prompts import Encode, Tokenizer, check_words, encoder
from ..players.seeds import GameKey
from ..processes.composing import FLASH, PACKED, TORCHS
from ..processes.terminal import note
from ..rollouts.schedule import GameShare, parse_games, plays_games

#: The number of random games that are played to measure their prompts.
PLAYOUTS = 5
_MODEL = "actor_rollout_ref.model"


def check_model(config: DictConfig) -> Any:
    """Refuse a model that is not whole, and prompts that do not fit, by a ValueError, or by an OSError of
    transformers'; returns the tokenizer."""
    from transformers import AutoConfig, AutoTokenizer

    model = config.actor_rollout_ref.model
    own = "path" if model.tokenizer_path is None else "tokenizer_path"
    trusted = bool(model.trust_remote_code)
    if not is_hub_id(model.path):
        folder = Path(model.path)
        if any(folder.glob("*.safetensors*")) or not any(folder.glob("*.bin")):
            check_whole(folder, f"{_MODEL}.path")
        check_unchanged(folder, f"{_MODEL}.path={folder}")
    local(str(model.path), CONFIGS, f"{_MODEL}.path=")  # transformers would ask the hub six times, for a minute
    tokenizer = AutoTokenizer.from_pretrained(os.path.expanduser(model[own]), trust_remote_code=trusted)
    form = AutoConfig.from_pretrained(model.path, trust_remote_code=trusted).get_text_config()
    if model.custom_chat_template is not None:  # as verl's workers have it
        tokenizer.chat_template = model.custom_chat_template
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
    highest = max((token for token in tokens if token is not None), default=0)
    require(
        highest < rows,
        f"{_MODEL}.path={config.actor_rollout_ref.model.path}: its tokenizer has the token {highest}, and its weights "
        f"have {rows}; take the tokenizer that the model was trained with",
    )


# -- prompts -----------------------------------------------------------------------------------------------------------


def check_prompts(config: DictConfig, tokenizer: Tokenizer, form: Any = None) -> None:
    """Check that every game's prompts can be made, and that neither they nor a plain answer are too long; otherwise
    ValueError says what to do."""
    longest, answer = config.data.max_prompt_length, config.data.max_response_length
    entries = list(config.games) + list(config.validation.games or [])
    for share in dict.fromkeys(share for entry in entries for share in parse_games([entry])):
        measured = _Measure(_encode(share, config, tokenizer), tokenizer)
        measured.play(share, config)
        _are_embedded([measured.highest], config, form)
        require(
            measured.shortest < answer or measured.shortest == math.inf,
            f"data.max_response_length={answer}: an answer of {share.id} has {measured.shortest} tokens and its end "
            "with this tokenizer; raise it, or leave the game out",
        )
        require(
            measured.longest <= longest,
            f"data.max_prompt_length={longest}: {share.id} has prompts of {measured.longest} tokens and more with this "
            "tokenizer, and prompts are never cut; raise it, leave the game out, or with prompt.style=dialogue set "
            "rules.turn_cap",
        )


def _encode(share: GameShare, config: DictConfig, tokenizer: Tokenizer) -> Encode:
    """The function that makes the game's prompts, after a trial: a chat template may leave out what is said, or earlier
    answers, or refuse them."""
    kwargs: Any = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    template, style = share.template or config.prompt.template, share.style or config.prompt.style
    encode = encoder(tokenizer, template, style, **kwargs)
    setting = f"games: {share.id}: template={template}, style={style}: the model's chat template"
    try:
        kept = encode("", ()) != encode("what is seen", ())
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error
    require(kept, f"{setting}: leaves out what is said; take prompt.template=octothinker")
    if style == "dialogue":
        try:
            kept = encode("", (("", "[a]"),)) != encode("", (("", "[b] [b]"),))
        except ValueError as error:
            raise ValueError(f"{setting}: {error.__cause__ or error}; take style state") from error
        require(kept, f"{setting}: leaves earlier answers out; take style state")
    return encode


class _Measure(RandomPlayer):
    """Plays at random, and keeps the number of tokens of the longest prompt and the shortest answer that a policy would
    have had, and the highest token in them."""

    def __init__(self, encode: Encode, tokenizer: Tokenizer) -> None:
        self._encode, self._tokenizer = encode, tokenizer
        self.longest, self.shortest, self.highest = 0, math.inf, 0

    def play(self, share: GameShare, config: DictConfig) -> None:
        """Play some games against itself."""
        rules = Rules.from_config(config.rules)
        try:
            for seed in range(PLAYOUTS):
                key = GameKey("check", 0, 0, seed)
                asyncio.run(play(key, share.id, make(share.id, seed), (self, self), (), rules))
        except Exception as error:  # TextArena's environments, and players of them at random, raise anything
            note(
                f"{share.id} could be played at random in part only, with prompts of {self.longest} tokens of "
                f"data.max_prompt_length={config.data.max_prompt_length}: {error}"
            )

    async def respond(self, position: Position) -> Response:
        prompt = self._encode(position.observation, position.history)
        self.longest = max(self.longest, len(prompt))
        response = await super().respond(position)
        answer = self._tokenizer.encode(response.text, add_special_tokens=False)
        self.shortest = min(self.shortest, len(answer))
        self.highest = max(self.highest, *prompt, *answer)
        return response
