"""``dry_run=true``: what a run would be. It starts nothing; of a hub's model it reads the config.

It prints the settings that differ from the defaults and the memory that the run needs. A run that would be refused is
refused in the same line, with the same status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...checks.combinations import check_by_verl
from ...checks.prompts_fit import check_model
from ...checks.resumption import finished, followed
from ...checks.settle import settle
from ...opponents.model_files import is_hub_id
from ...processes.composing import RECIPE
from ...processes.terminal import fail, visible
from ...storage.run_files import flat
from . import memory

#: Config groups in which a command line chooses one file; and settings that say where, and that a run is planned.
_GROUPS = ("hardware", "model", "task", "loss")
_OWN = {"dry_run", "run_dir"}


def dry_run(config: DictConfig) -> int:
    """Print what a run would be; returns the exit status: 2 where it would be refused."""
    print(visible(f"dry run: {config.run_dir}; nothing is started"))
    try:
        for line in _lines(config, {group: HydraConfig.get().runtime.choices[group] for group in _GROUPS}):
            print(visible(line), flush=True)
    except (ValueError, ImportError, OSError, OmegaConfBaseException) as error:
        return fail(error, status=2)
    return 0


def _lines(config: DictConfig, choices: Mapping[str, str]) -> Iterator[str]:
    """What is printed; raises what a start would be refused with."""
    yield f"settings that differ from the defaults of {', '.join(f'{k}={v}' for k, v in choices.items())}"
    yield from (f"  {name}: {value}" for name, value in differences(config, choices))
    if done := finished(config):
        yield done
        return
    yield from followed(config)
    yield from _of_model(config)


def differences(config: DictConfig, choices: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Each setting whose value is neither the default of the chosen groups nor follows from the others, by its whole
    name."""
    running = Singleton.get_state()  # Hydra composes one config at a time: the program's own is put aside
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        default = compose("spiral_trainer", overrides=[f"{group}={choice}" for group, choice in choices.items()])
    Singleton.set_state(running)
    written = _values(default)
    settle(default)
    settled, now = (_values(each) for each in (default, config))
    follows = {name for name, value in settled.items() if name in written and value != written[name]}
    again = config.copy()
    for name in follows:
        OmegaConf.update(again, name, written[name], force_add=True)
    settle(again)
    expected = settled | {name: value for name, value in _values(again).items() if name in follows}
    return [(name, value) for name, value in now.items() if expected.get(name, ...) != value and name not in _OWN]


def _values(config: DictConfig) -> dict[str, Any]:
    """Every setting by its whole name, as it is written: one that follows from another is a link."""
    return flat(OmegaConf.to_container(config, resolve=False, enum_to_str=True))


def _of_model(config: DictConfig) -> Iterator[str]:
    """The memory that the model takes, and what cannot be said of it here."""
    from transformers import AutoConfig

    model = config.actor_rollout_ref.model
    check_by_verl(config)
    if not is_hub_id(model.path):
        check_model(config)  # says what is wrong with the folder
    try:
        made = AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.trust_remote_code))
    except (OSError, ValueError):
        yield f"memory: not known: the config.json of {model.path} (1 kB) is not here, and the hub cannot be reached"
        return
    yield from memory.table(config, memory.size_of(made))
    if is_hub_id(model.path):
        yield f"to be downloaded, unless it is in the cache: {model.path}"
