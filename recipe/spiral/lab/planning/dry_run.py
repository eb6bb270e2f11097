"""``dry_run=true``: what a run would be. Without Ray, CUDA or network; it writes nothing.

It prints the settings that differ from the defaults, the memory that the run needs, what it would download, and what
could not be checked here. A run that would be refused is refused in the same line, with the same status.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from ...checks import ConfigError, check_model
from ...checks.machine import check_folders
from ...checks.names import values
from ...checks.resumption import check_same_model, finished, followed
from ...checks.settle import settle
from ...opponents.fixed_opponents import MODEL, parse_opponents
from ...opponents.model_files import is_hub_id
from ...players.seats import BASE
from ...processes.composing import RECIPE
from ...processes.masking import without_secrets
from ...processes.starting import choose_checkpoint, model_of_resumed
from ...processes.terminal import fail, visible
from ..evaluation.benchmarks.catalog import CATALOG
from ..evaluation.benchmarks.validation_benchmarks import parse_entries
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


def dry_run(config: DictConfig) -> int:
    """Print what a run would be; returns the exit status: 2 where it would be refused."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's package is imported
    os.environ.setdefault(VISIBLE, "")  # what is set tells how large the GPUs are
    try:
        print(visible(f"dry run: {without_secrets(str(config.run_dir))}; nothing is started, asked or trained"))
        for line in _lines(config, {group: HydraConfig.get().runtime.choices[group] for group in _GROUPS}):
            print(visible(line), flush=True)
    except (ValueError, ImportError, OSError, OmegaConfBaseException) as error:
        return fail(error, status=2)
    return 0


def _lines(config: DictConfig, choices: Mapping[str, str]) -> Iterator[str]:
    """What is printed; raises ConfigError where the run would be refused."""
    yield f"settings that differ from the defaults of {', '.join(f'{k}={v}' for k, v in choices.items())}"
    yield from (f"  {name}: {value}" for name, value in differences(config, choices))
    benchmarks = parse_entries(config.validation.benchmarks)
    local = config.copy()
    local.validation.benchmarks = [entry.model_dump() for entry in benchmarks if entry.path is not None]
    choose_checkpoint(local)
    if lines := finished(local):
        yield from lines
        return
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
    downloads += [f"benchmark {CATALOG[entry.id].place}" for entry in benchmarks if entry.path is None]
    if downloads:
        yield "to be downloaded, where it is not in the cache"
        yield from (f"  {what}" for what in downloads)
    yield f"not checked here: {'; '.join(unchecked)}"


def differences(config: DictConfig, choices: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Each setting whose value is not the default of the chosen groups, by its whole name; without keys, and without
    what follows from the others."""
    with _own_hydra(), initialize_config_dir(str(RECIPE / "config"), version_base=None):
        default = compose("spiral_trainer", overrides=[f"{group}={choice}" for group, choice in choices.items()])
    written = values(default, resolve=False)
    settle(default)
    settled, now = values(default, resolve=False), values(config, resolve=False)
    follows = {name for name, value in settled.items() if value != written.get(name, settled)}
    changed = [(name, value) for name, value in now.items() if settled.get(name, settled) != value]
    return [(name, without_secrets(str(value))) for name, value in changed if name not in follows | {*_OWN}]


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Put the running program's Hydra aside."""
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        Singleton.set_state(state)


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
