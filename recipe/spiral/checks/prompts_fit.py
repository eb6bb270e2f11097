"""Checks that the model exists, and that the games' prompts can be made with its tokenizer, and are not too long.

Games are played at random, and as they become longest, and the prompts are made as for the policy: in each game's
template and style, with the whole conversation where the style has one. A limit that such games exceed is refused. Of
what hardly anybody would say (the longest messages in a script that the tokenizer does not know, a dialogue of the
longest game) there is a note. Where no player at random can be had, the prompts up to there are measured.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..games import Game, make
from ..games.base import TEXTARENA
from ..games.text import message
from ..match import Rules, play
from ..opponents.fixed_opponents import API, parse_opponents
from ..opponents.pool_sources import check_unchanged
from ..players.base import Position, Response
from ..players.prompts import Encode, Tokenizer, boxed, encoder
from ..players.seeds import GameKey
from ..processes.composing import FLASH, PACKED, TORCHS
from ..processes.terminal import note
from ..rollouts import benchmarks
from ..rollouts.schedule import GameShare, parse_games
from .errors import ConfigError
from .resuming import check_same_model
from .tasks import asks_questions, check_question_prompts
from .verls import has_critic

#: The number of random games that are played to measure their prompts; of TextArena's, whose random player tries
#: actions out; and of games as long as can be.
PLAYOUTS, TEXTARENA_PLAYOUTS, LONGEST_PLAYOUTS = 20, 3, 2
#: The number of characters of a text that is said: more than a game reads.
_SAID = 1000
_ENGLISH = "We could well agree about this if you say what you want, and why it is fair. "
#: First and last characters: letters of Latin, Cyrillic, Thai; Chinese; Korean; emoji; cuneiform.
_SCRIPTS = (
    "az",
    "\u0430\u044f",
    "\u0e01\u0e2e",
    "\u4e00\u9fa5",
    "\uac00\ud7a3",
    "\U0001f600\U0001f64f",
    "\U00012000\U00012399",
)


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
    from transformers import AutoConfig, AutoTokenizer

    trusted = config.actor_rollout_ref.model.trust_remote_code
    try:
        check_unchanged(Path(path), f"actor_rollout_ref.model.path={path}")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trusted)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"actor_rollout_ref.model.path={path}: its tokenizer cannot be loaded: {reason}") from error
    form = AutoConfig.from_pretrained(path, trust_remote_code=trusted).get_text_config()
    check_same_model(config, form)
    if has_critic(config):
        critic = config.critic.model
        started = AutoConfig.from_pretrained(critic.path, trust_remote_code=critic.trust_remote_code)
        check_same_model(config, started.get_text_config(), "critic")
    _window_fits(config, form)
    _attention_is_the_engines(config, form)
    _rows_stay_apart(config, form)
    _attention_can_be_replaced(config, form)
    try:
        (check_question_prompts if asks_questions(config) else check_prompts)(config, tokenizer)
        benchmarks.check_prompts(config, tokenizer)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return tokenizer


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
    from jinja2 import TemplateError

    path = config.actor_rollout_ref.model.path
    kwargs = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    assert isinstance(kwargs, dict)
    template, style = _prompt(share, config)
    encode = encoder(tokenizer, template, style, **{str(name): value for name, value in kwargs.items()})
    setting = f"prompt.template={template}" if share.template is None else f"games: {share.id}: template={template}"
    try:
        encode("", ())
    except (ValueError, TemplateError) as error:
        raise ValueError(
            f"{setting}: does not go with {path}: {error}; a model without a chat template takes "
            "prompt.template=r1 or octothinker"
        ) from error
    if style == "state":
        return encode
    setting = f"prompt.style={style}" if share.style is None else f"games: {share.id}: style={style}"
    try:
        kept = encode("", (("", "[a]"),)) != encode("", (("", "[b] [b]"),))
    except (ValueError, TemplateError) as error:
        raise ValueError(f"{setting}: does not go with {path}: {error}; take style state") from error
    if not kept:
        raise ValueError(f"{setting}: the chat template of {path} leaves earlier answers out; take style state")
    return encode


def _prompt(share: GameShare, config: DictConfig) -> tuple[str, str]:
    """A game's template and style."""
    return share.template or config.prompt.template, share.style or config.prompt.style


def _random_action(position: Position) -> str:
    rng = random.Random(position.key.seed("random player", position.player, position.turn))
    return position.game.random_action(rng)


def _longest_action(words: str, fits: Callable[[str], bool]) -> Callable[[Position], str]:
    """Chooses what makes prompts longest among the actions that fit into a response; so many of the words as do."""
    length = bisect.bisect_left(range(len(words) + 1), True, key=lambda end: not fits(message(words[:end]))) - 1
    said = words[: max(length, 0)]

    def actions(game: Game) -> Iterator[str | None]:
        yield game.longest_action(said)
        yield game.parse(said)
        yield next(iter(game.legal_actions()), None)

    return lambda position: next((action for action in actions(position.game) if action and fits(action)), "")


def _fits(config: DictConfig, encode: Encode) -> Callable[[str], bool]:
    """Whether players can write an action. Models have data.max_response_length tokens for it, an endpoint its own."""
    if any(opponent.kind == API for opponent in parse_opponents(config.opponents)):
        return lambda action: True
    empty = len(encode("", ()))
    return lambda action: len(encode(boxed(action), ())) - empty <= config.data.max_response_length


def _unknown_script(encode: Encode) -> str:
    """A text in the script of which a message has the most tokens."""
    rng = random.Random(0)
    texts = ["".join(chr(rng.randint(*map(ord, script))) for _ in range(_SAID)) for script in _SCRIPTS]
    return max(texts, key=lambda text: len(encode(message(text), ())))


class _Measure:
    """Plays what it is told to, and keeps the number of tokens of the longest prompt that a policy would have had.

    It ends the game where prompts have more than ``enough`` tokens.
    """

    name = "measure"

    def __init__(self, encode: Encode, choose: Callable[[Position], str], enough: float) -> None:
        self._encode, self._choose, self.enough = encode, choose, enough
        self.longest = 0

    async def respond(self, position: Position) -> Response:
        self.longest = max(self.longest, len(self._encode(position.observation, position.history)))
        return Response("" if self.longest > self.enough else boxed(self._choose(position)))


def _longest_prompt(game_id: str, player: _Measure, rules: Rules, playouts: int) -> tuple[int, Exception | None]:
    """The number of tokens of the longest prompt of so many games, and why one could not be played on."""
    for seed in range(playouts):
        key = GameKey("check", 0, 0, seed)
        try:
            asyncio.run(play(key, game_id, make(game_id, seed), (player, player), (), rules))
        except Exception as error:  # TextArena's environments, and players of them at random, raise anything
            return player.longest, error
        if player.longest > player.enough:
            break
    return player.longest, None


def _game_fits(share: GameShare, encode: Encode, config: DictConfig) -> None:
    limit, rules = config.data.max_prompt_length, Rules.from_config(config.rules)
    dialogue, textarena = _prompt(share, config)[1] == "dialogue", share.id.startswith(TEXTARENA)
    # These grow without a bound worth measuring: it is enough to know that they can be too long.
    unbounded = dialogue or textarena
    enough = limit if unbounded else math.inf

    def measure(choose: Callable[[Position], str], playouts: int) -> tuple[int, Exception | None]:
        return _longest_prompt(share.id, _Measure(encode, choose, enough), rules, playouts)

    usual, failed = measure(_random_action, TEXTARENA_PLAYOUTS if textarena else PLAYOUTS)
    if failed is not None:
        note(
            f"data.max_prompt_length={limit}: {share.id} could be played at random in part only, with prompts of "
            f"{usual} tokens: {failed}"
        )
    fits = cache(_fits(config, encode))
    longest, _ = measure(_longest_action(_ENGLISH * (_SAID // len(_ENGLISH)), fits), LONGEST_PLAYOUTS)
    if not unbounded:
        usual = max(usual, longest)
    if usual > limit:
        mend = "raise it, or leave the game out"
        if dialogue:
            mend = "raise it, set rules.turn_cap, give the game style: state, or leave it out"
        raise ValueError(
            f"data.max_prompt_length={limit}: {share.id} has prompts of {usual} tokens and more with this tokenizer, "
            f"and prompts are never cut; {mend}"
        )
    if not make(share.id, 0).actions:  # what is said is free
        longest = max(longest, measure(_longest_action(_unknown_script(encode), fits), LONGEST_PLAYOUTS)[0])
    if longest > limit:
        note(
            f"data.max_prompt_length={limit}: the longest games of {share.id} have prompts of {longest} tokens"
            f"{' and more' if unbounded else ''}. A game with a longer prompt than allowed ends there, lost for both "
            f"players. To have none, raise it{', or set rules.turn_cap' if dialogue else ''}"
        )
