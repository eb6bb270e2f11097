"""The real config with overrides, for tests of what is wrong with one."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.spiral import main_spiral
from recipe.spiral.checks.settle import settle

#: The config's resolvers come with the module that it lies beside.
CONFIG = Path(main_spiral.__file__).parent / "config"
#: A model.
SHIPPED = CONFIG.parent / "shipped" / "tiny"


@cache
def composed(hardware: str, model: str, *groups: str) -> bytes:
    """Pickled, because a deep copy takes five times as long to make."""
    overrides = [f"hardware={hardware}", f"model={model}", *groups]
    with initialize_config_dir(str(CONFIG), version_base=None):
        return pickle.dumps(compose("spiral_trainer", overrides=overrides))


def config(
    tmp_path: Path, *overrides: str, hardware: str = "cpu", model: str = "tiny", groups: Sequence[str] = ()
) -> DictConfig:
    """The real config, settled; overrides are merged into a copy, because composing it anew takes half a second.

    Args:
        groups: choices of other config groups, as ``loss=dpo``.
    """
    made = pickle.loads(composed(hardware, model, *groups))
    assert isinstance(made, DictConfig)
    made.merge_with(OmegaConf.from_dotlist([f"run_dir={tmp_path / 'run'}", *overrides]))
    settle(made)
    return made


def composed_by(program: str, words: Sequence[str]) -> DictConfig:
    """What a program composes from a command line, settled."""
    overrides = [word for word in words if not word.startswith("-")]
    with initialize_config_dir(str(CONFIG), version_base=None):
        made = compose(program, overrides=overrides)
    if program == "spiral_trainer":
        settle(made)
    return made


def without_weights(file: Path) -> None:
    """A whole file of safetensors that has none."""
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
