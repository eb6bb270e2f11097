"""``dry_run=true``: what a run would be. Without Ray, CUDA or network; it writes nothing.

It prints the settings that differ from the defaults, the memory that the run needs, what it would download, and what
could not be checked here. A run that would be refused is refused in the same line, with the same status.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ...checks import ConfigError, check, check_model
from ...checks.command_line import Job
from ...checks.errors import require, written
from ...checks.machine import check_folders
from ...checks.names import CONFIG, values
from ...checks.resumption import check_same_model, finished, followed
from ...checks.settle import following, settle
from ...opponents.fixed_opponents import MODEL, parse_opponents
from ...opponents.model_files import is_hub_id
from ...players.seats import BASE
from ...processes.masking import without_secrets
from ...processes.starting import choose_checkpoint, model_of_resumed
from ...processes.terminal import fail, visible
from ..models import EMBEDDED
from ..models import of_config as embedded_of
from ..models.published import GATED, PUBLISHED
from . import memory_table
from .devices import VISIBLE
from .estimate import GIB, estimate
from .model_size import ModelSize, measure, of_config

#: Config groups in which a command line chooses one file.
_GROUPS = ("hardware", "model", "task", "loss")
#: What extensions look at when the model is there.
_LAST = ("trackers", "the lengths of questions", "what your own extensions look at last")
#: Settings that say where and that a run is planned, not what it is.
_OWN = ("dry_run", "run_dir")


def dry_run(jobs: Sequence[Job]) -> int:
    """Print what each of the jobs would be; returns the exit status: 2 where one of them would be refused."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's package is imported
    os.environ.setdefault(VISIBLE, "")  # what is set tells how large the GPUs are
    status = 0
    for config, hydra_config in jobs:
        try:
            require(bool(config.run_dir), f"run_dir={written(config.run_dir)}: must be a folder")
            config.run_dir = str(config.run_dir)  # also where it looks like a number
            print(visible(f"dry run: {without_secrets(str(config.run_dir))}; nothing is started, asked or written"))
            for line in _lines(config, hydra_config):
                print(visible(line), flush=True)
        except (ValueError, ImportError, OSError, OmegaConfBaseException) as error:
            status = fail(error, status=2)
    return status


def _lines(config: DictConfig, hydra_config: DictConfig) -> Iterator[str]:
    """What is printed; raises ConfigError where the run would be refused."""
    choices = {group: hydra_config.runtime.choices[group] for group in _GROUPS}
    yield f"settings that differ from the defaults of {', '.join(f'{k}={v}' for k, v in choices.items())}"
    yield from (f"  {name}: {value}" for name, value in differences(config, choices))
    local = config.copy()
    choose_checkpoint(local)
    if lines := finished(local):
        yield from lines
        return
    check(local, here=False)
    check_folders(local, here=False)
    yield from followed(local)
    size, downloads, unchecked = look_at_model(local)
    unchecked += ["this machine's GPUs and packages", "what verl itself refuses (optimizer, loss, engine)", *_LAST]
    if size is not None:
        memory, known = memory_table.device_memory(config)
        made = estimate(config, size, memory)
        yield from memory_table.table(made, known)
        if not made.fits and config.memory.on_excess == "stop":
            raise ConfigError(memory_table.refusal(config, size, made))
    opponents = [o.settings["path"] for o in parse_opponents(config.opponents) if o.kind == MODEL]
    opponents += [entry["path"] for entry in config.fsp.initial if config.fsp.enabled and entry != BASE]
    downloads += [f"{path}, an opponent" for path in map(str, opponents) if is_hub_id(path)]
    if downloads:
        yield "to be downloaded, where it is not in the cache"
        yield from (f"  {what}" for what in downloads)
    yield f"not checked here: {'; '.join(unchecked)}"


def differences(config: DictConfig, choices: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Each setting whose value is not the default of the chosen groups, by its whole name; without keys, and without
    what follows from the others."""
    with initialize_config_dir(str(CONFIG), version_base=None):
        default = compose("spiral_trainer", overrides=[f"{group}={choice}" for group, choice in choices.items()])
    before, now, unset = values(default, resolve=False), values(config, resolve=False), config.copy()
    follows = following(config)
    for name in follows.keys() & before.keys():
        OmegaConf.update(unset, name, before[name])
    settle(unset, say=lambda line: None)
    before |= {name: value for name, value in values(unset, resolve=False).items() if name in follows}
    changed = [(name, value) for name, value in now.items() if before.get(name, _OWN) != value]
    return [(name, without_secrets(str(value))) for name, value in changed if name not in _OWN]


def look_at_model(config: DictConfig) -> tuple[ModelSize | None, list[str], list[str]]:
    """The model's size, if it is known; what would be downloaded or made of it; and what cannot be checked."""
    prompts = "the lengths of prompts, as the model's tokenizer is not here"
    if config.actor_rollout_ref.model.path is None:
        users = any(not name.startswith("recipe.spiral.") for name in config.extensions)
        unknown = users and config.embedded_model not in EMBEDDED  # an extension of the user's may make it
        try:
            folder = model_of_resumed(config) or (None if unknown else embedded_of(config, make=False))
        except (ValueError, ImportError) as error:
            raise ConfigError(f"embedded_model={config.embedded_model}: {error}") from error
        if folder is None:
            made = f"{config.embedded_model}: made or unpacked on the machine of the run"
            return None, [made], [prompts, "the memory, as the model is not made"]
        with open_dict(config):
            config.actor_rollout_ref.model.path = str(folder)
    path, trusted = str(config.actor_rollout_ref.model.path), bool(config.actor_rollout_ref.model.trust_remote_code)
    try:
        size = measure(path, trusted)
    except (OSError, ValueError):
        if path not in PUBLISHED:
            if not is_hub_id(path):
                check_model(config)
                return None, [], ["the memory, as it is not known how this model is made"]
            return None, [path], [prompts, "the memory, as the model's config is not here"]
        from transformers import AutoConfig

        check_same_model(config)
        size = of_config(AutoConfig.for_model(**PUBLISHED[path]))
        terms = ", after its terms were accepted on the hub" if path in GATED else ""
        return size, [f"{path}: about {2 * size.parameters / GIB:.0f} GiB{terms}"], [prompts]
    check_model(config)
    return size, [], []
