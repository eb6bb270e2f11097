"""Models that come with the recipe: a tiny one, and a small real one out of a Python package.

The tiny model for the default games is shipped in ``shipped/``. For other games it is made on this machine. For the
trainer all of them are folders of Hugging Face's form, like any other model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What ``embedded_model`` can be.
EMBEDDED = ("tiny", "tiny_lines", "smollm2_135m")
#: The games that a tiny model is made for where no games are named. The shipped one is made for those of "tiny".
MADE_FOR = {"tiny": ("TicTacToe", "KuhnPoker"), "tiny_lines": ("TicTacToe",)}


def of_config(config: Any, make: bool = True) -> Path | None:
    """The folder of a config's embedded model, of which a tiny one is made for all games of the run; errors as of
    ``embedded``. None: without ``make``, where it would have to be made or unpacked."""
    from ...rollouts.schedule import parse_games, validated_games
    from . import tiny
    from .read_back import NoQuestions

    name, template = config.embedded_model, config.prompt.template
    if name not in EMBEDDED:
        raise ValueError(f"unknown; known models: {', '.join(EMBEDDED)}")
    trained = [share.id for share in parse_games(config.games)]
    games = trained + [share.id for share in validated_games(config)]
    try:
        if make:
            return embedded(name, games, template)
        return tiny.there(games, template, lines=name == "tiny_lines") if name in MADE_FOR else None
    except NoQuestions as error:
        raise ValueError(
            f"{error}. A pretrained model needs none: `python -m recipe.spiral.main_spiral model=smollm2_135m "
            f"'games=[{','.join(trained)}]'`, or your own by model=hf actor_rollout_ref.model.path=FOLDER"
        ) from error


def embedded(name: str, games: Sequence[str], template: str) -> Path:
    """The folder of an embedded model. One that is neither shipped nor in the cache is made now.

    Args:
        name: one of ``EMBEDDED``. "tiny_lines" is the tiny model that was asked about TicTacToe's lines as well.
        games, template: what a tiny model is made for: the games' ids, and the name of the prompts' template.

    Raises:
        ValueError: an unknown name, or games that no tiny model can be made for.
        ImportError: a package is missing; the message says how to install it.
        RuntimeError: the model was made, and does not meet the criteria.
    """
    if name in ("tiny", "tiny_lines"):
        from . import tiny

        return tiny.ensure(games, template, lines=name == "tiny_lines")
    if name == "smollm2_135m":
        from . import smollm2

        return smollm2.ensure()
    raise ValueError(f"{name!r}: unknown; known models: {', '.join(EMBEDDED)}")
