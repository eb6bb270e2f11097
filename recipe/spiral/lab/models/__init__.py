"""Models that come with the recipe: two tiny ones, how another is made, and a small real one out of a Python package.

For the trainer all of them are folders of Hugging Face's form, like any other model. The tiny ones lie in ``shipped/``.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

#: Their names in an evaluation and at the table.
EMBEDDED = ("tiny", "tiny_lines", "smollm2_135m")
#: The games that a shipped model was made for.
MADE_FOR = {"tiny": ("TicTacToe", "KuhnPoker"), "tiny_lines": ("TicTacToe",)}
SHIPPED = Path(__file__).parents[2] / "shipped"


def embedded(name: str, games: Collection[str] = ()) -> Path:
    """The folder of an embedded model, which is to play these games.

    Raises:
        ValueError: an unknown name, or a game that the model was not made for.
        ImportError: a package is missing; the message says how to install it.
    """
    if name == "smollm2_135m":
        from . import smollm2

        return smollm2.ensure()
    if name not in MADE_FOR:
        raise ValueError(f"{name!r}: unknown; known models: {', '.join(EMBEDDED)}")
    if others := sorted(set(games) - set(MADE_FOR[name])):
        raise ValueError(
            f"{name} was not made for {', '.join(others)}: make one by python -m recipe.spiral.models tiny --games "
            f"{' '.join(sorted(games))} --output FOLDER, and take it by actor_rollout_ref.model.path=FOLDER"
        )
    return SHIPPED / name
