"""Finds what is wrong with a config before anything is started, and says which setting to change and how.

- ``command_line``: composes the config; ``names``: refuses a key that nobody reads
- ``schema``: the type and the range of each of SPIRAL's settings; ``combinations``: whether they go together
- ``settings.yaml``: what both know of single settings
- ``opponents_play``: whom the policy plays besides itself
- ``verls``: what verl would accept and SPIRAL cannot work with, also in its asynchronous modes
- ``resumption``: what a run saves and resumes from; ``machine``: what is installed
- ``prompts_fit``: the model and its tokenizer, and whether the games' prompts fit
"""

from __future__ import annotations

from functools import partial

from omegaconf import DictConfig, OmegaConf

from ..extensions import loaded
from . import combinations, machine, opponents_play, resumption, verls
from .command_line import compose, is_sweep
from .errors import ConfigError, refusals
from .names import walk
from .prompts_fit import check_folder, check_model
from .schema import check_values

__all__ = ["ConfigError", "check", "check_model", "compose", "is_sweep", "refusals"]


def check(config: DictConfig, here: bool = True) -> None:
    """Refuse, by a ConfigError, what can be seen to be wrong without the model.

    Args:
        config: as it was composed, not resolved.
        here: whether it is to run on this machine.
    """
    modules = (combinations, opponents_play, verls, *([machine] if here else []), resumption)
    parts = [part for module in modules for part in module.PARTS]
    values = dict(walk(OmegaConf.to_container(config, resolve=False)))  # once: OmegaConf takes long
    for look, at in (
        (combinations.has_model, config),
        (combinations.complete, values),
        (partial(check_values, values=values), config),
        (check_folder, config),
        *((part, config) for part in (*parts, *(extension.check for extension in loaded()))),
    ):
        with refusals():
            look(at)
