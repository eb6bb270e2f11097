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
    raise ValueError(f"embedded_model={name!r}: unknown; known models: {', '.join(EMBEDDED)}")


def model_of_resumed(config: Any) -> Path | None:
    """The folder of the embedded model that a run began with, if the run is resumed and the folder is still there.

    A resumed run needs it as its KL reference, as the base of LoRA and as the pool's first member. Another version of
    this recipe, or another machine, may provide another model by the same name. Raises ValueError: the config that the
    run's folder keeps is damaged.
    """
    from omegaconf import OmegaConf

    from ...storage.checkpoints import config_file, latest
    from ...storage.run_config import load_config

    mode = OmegaConf.select(config, "trainer.resume_mode")
    if mode == "resume_path":
        run_dir = Path(config.trainer.resume_from_path).parent.parent
    elif mode == "auto" and latest(Path(config.trainer.default_local_dir)) is not None:
        run_dir = Path(config.run_dir)
    else:
        return None
    if not (file := config_file(run_dir)).is_file():
        return None
    before = load_config(file)
    path = OmegaConf.select(before, "actor_rollout_ref.model.path")
    same = OmegaConf.select(before, "embedded_model") == config.embedded_model
    return Path(path) if same and isinstance(path, str) and Path(path).is_dir() else None
