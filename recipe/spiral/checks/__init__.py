"""Finds what is wrong with a config before anything is started, and says which setting to change and how.

``settings`` checks what SPIRAL itself reads, ``opponents`` whom the policy plays besides itself, ``booleans`` what is
true or false, ``verls`` what verl would accept and SPIRAL cannot do with, ``checkpoints`` what a run saves and goes on
from, ``machine`` what is installed, ``model`` the model and its tokenizer, and ``prompts`` whether the games' prompts
fit.
"""

from __future__ import annotations

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ..serving.benchmarks import check_entries
from . import booleans, checkpoints, machine, opponents, settings, verls
from .command_line import compose, is_sweep
from .errors import ConfigError
from .model import check_model

__all__ = ["ConfigError", "check", "check_model", "compose", "is_sweep"]


def check(config: DictConfig) -> None:
    """All that can be checked without the model; ``config`` is as it was composed, not resolved.

    Raises:
        ConfigError: something is wrong.
    """
    parts = (booleans, settings, opponents, verls, machine, checkpoints)
    for look in [*(look for part in parts for look in part.PARTS), check_entries]:
        try:
            look(config)
        except ConfigError:
            raise
        except (ValueError, ImportError, OmegaConfBaseException) as error:
            raise ConfigError(str(error)) from error
