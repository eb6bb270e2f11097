"""Checks that the games' prompts can be made with a tokenizer, and fit into the longest prompt that is allowed.

Games are played at random, and the prompts are made as for the policy: in each game's template and style, with the
whole conversation where the style has one.
"""

from __future__ import annotations

import asyncio
import sys

from omegaconf import DictConfig, OmegaConf

from ..games import make
from ..match import Rules, play
from ..play.players import Position, RandomPlayer, Response
from ..play.prompts import Encode, Tokenizer, encoder
from ..play.seeds import GameKey
from ..serving.schedule import GameShare, parse_games

#: The number of random games that are played to measure their prompts.
PLAYOUTS = 20


def check_prompts(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Check that every game's prompts can be made, and that none is too long.

    Raises:
        ValueError: one cannot, or is; the message names the setting and what to do.
    """
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


class _Measure:
    """Plays at random, and keeps the length in tokens of the longest prompt that a policy would have had."""

    name = "random"

    def __init__(self, encode: Encode) -> None:
        self._encode, self._random = encode, RandomPlayer()
        self.longest = 0

    async def respond(self, position: Position) -> Response:
        self.longest = max(self.longest, len(self._encode(position.observation, position.history)))
        return await self._random.respond(position)


def _game_fits(share: GameShare, encode: Encode, config: DictConfig) -> None:
    limit, rules = config.data.max_prompt_length, Rules.from_config(config.rules)
    dialogue = _prompt(share, config)[1] == "dialogue"
    mend = "raise it, or leave the game out"
    if dialogue:
        mend = "raise it, set rules.turn_cap, give the game style: state, or leave it out"
    played = expected = most = 0
    for seed in range(PLAYOUTS):
        game, measure = make(share.id, seed), _Measure(encode)
        record = asyncio.run(play(GameKey("check", 0, 0, seed), share.id, game, (measure, measure), (), rules))
        if measure.longest > limit:
            raise ValueError(
                f"data.max_prompt_length={limit}: {share.id} has prompts of {measure.longest} tokens and more with "
                f"this tokenizer, and prompts are never cut; {mend}"
            )
        turns = len(record.turns)
        most = min(game.max_turns, rules.turn_cap or game.max_turns)
        played, expected = max(played, turns), max(expected, measure.longest * most // max(1, turns))
    if dialogue and played < most and expected > limit:
        print(
            f"note: data.max_prompt_length={limit}: {share.id} was over after {played} turns at most, and may go on to "
            f"{most}, with prompts of some {expected} tokens in the style dialogue; a longer one than allowed ends the "
            "run. Raise it, or set rules.turn_cap",
            file=sys.stderr,
            flush=True,
        )
