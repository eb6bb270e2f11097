"""Configs of runs. Hydra takes a third of a second for each, so tests share what they do not change."""

from __future__ import annotations

from functools import cache

from omegaconf import DictConfig, OmegaConf

from experiments.composed import CONFIG, compose_run


def run_config(*arguments: str) -> DictConfig:
    """The config that ``compose_run`` makes of these arguments.

    What chooses files is composed once; values are set in a copy, as Hydra does it, after everything else.
    """
    files = [argument for argument in arguments if _chooses_files(argument)]
    values = [argument for argument in arguments if argument not in files]
    merged = OmegaConf.merge(_composed(*files), OmegaConf.from_dotlist(values))
    assert isinstance(merged, DictConfig)
    return merged


def _chooses_files(argument: str) -> bool:
    """Whether it is one of Hydra's own arguments, or chooses a file of a group, as ``+experiment=kuhn``."""
    key, is_override, _ = argument.partition("=")
    return not is_override or (CONFIG / key.removeprefix("+")).is_dir()


@cache
def _composed(*arguments: str) -> DictConfig:
    return compose_run(arguments)
