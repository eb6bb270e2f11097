"""Composes the config of a training run inside another program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recipe.spiral.checks.settle import settle
from recipe.spiral.lab.models import MADE_FOR, tiny
from recipe.spiral.processes.composing import RECIPE  # this import also registers the config's resolvers
from recipe.spiral.rollouts.schedule import parse_games, validated_games

CONFIG = RECIPE / "config"


def compose_run(arguments: Sequence[str]) -> DictConfig:
    """The config that ``main_spiral`` composes from these arguments on a machine without an accelerator.

    Raises:
        ValueError: Hydra cannot compose them; the message is Hydra's.
    """
    overrides, folders, rest = [], [], list(arguments)
    while rest:
        if (argument := rest.pop(0)) == "--config-dir":
            folders.append(Path(rest.pop(0)).absolute())
        else:
            overrides.append(argument)
    base = OmegaConf.load(CONFIG / "spiral_trainer.yaml")
    paths = ",".join([base.hydra.searchpath[0], *(f"file://{folder}" for folder in folders)])
    try:
        with _own_hydra(), initialize_config_dir(str(CONFIG), version_base=None):
            config = compose("spiral_trainer", overrides=[f"hydra.searchpath=[{paths}]", "hardware=cpu", *overrides])
        settle(config)
        return config
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"{' '.join(arguments)}: {error}") from error


def warm_start(config: DictConfig, seed: int) -> Path:
    """The folder of the config's tiny model with another seed. Like the shipped one it is made for the usual games if
    the config's are among them.

    Raises:
        ValueError: the config's model is no tiny one.
    """
    name, path = config.embedded_model, config.actor_rollout_ref.model.path
    if path is not None or name not in MADE_FOR:
        raise ValueError(f"warm_starts: only of {' or '.join(MADE_FOR)}, not of {path or name}")
    games = {share.id for share in (*parse_games(config.games), *validated_games(config))}
    made_for = None if games <= {*MADE_FOR[name]} else sorted(games)
    return tiny.ensure(games=made_for, template=config.prompt.template, lines=name == "tiny_lines", seed=seed)


def differences(config: DictConfig, default: DictConfig) -> dict[str, Any]:
    """The values of ``config`` that differ from ``default``, by dotted key; interpolations stay as they are written."""
    ours, defaults = (dict(_flat(OmegaConf.to_container(tree, resolve=False))) for tree in (config, default))
    return {key: value for key, value in ours.items() if key not in defaults or defaults[key] != value}


def _flat(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flat(value, f"{place}.{key}" if place else str(key))
    else:
        yield place, node


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Hydra composes one config at a time, so the config of the program that calls us is put aside meanwhile."""
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        Singleton.set_state(state)
