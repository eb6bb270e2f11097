"""Refuses what would train wrongly without a word, or fail after minutes, before anything is started.

Types and names are Hydra's to refuse, by ``config.py``, which also has the ranges; what Ray, vLLM, verl or
transformers say by themselves within seconds, they say.
"""

from __future__ import annotations

from omegaconf import DictConfig

from ..config import out_of_range
from . import combinations, resumption


def check(config: DictConfig) -> None:
    """Refuse, by a ValueError or ImportError, what can be seen to be wrong with a settled config without the model."""
    for look in (out_of_range, *combinations.PARTS):
        for wrong in look(config):
            raise ValueError(wrong)
    combinations.check_opponents(config)
    resumption.check_contents(config)
    resumption.check_resumption(config)
