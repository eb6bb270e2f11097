"""The names of all settings, and the refusal of a key that nobody reads, or of a value in place of a section or list.

The names come from the YAML files: SPIRAL's, verl's defaults in one generated file, and ``settings.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.conf import HydraConf
from omegaconf import DictConfig, OmegaConf

from ..processes.composing import RECIPE, in_verl
from .errors import ConfigError, written

CONFIG = RECIPE / "config"
#: verl's defaults in one file, in its folder.
VERLS = "trainer/config/_generated_ppo_trainer.yaml"
#: Config groups that a command line may name besides the settings, by program.
GROUPS = {"spiral_trainer": ("experiment", "sweep", "hardware", "model", "task", "loss"), "eval": ("engine",)}


@cache
def read_yaml(file: Path) -> Mapping[str, Any]:
    """A file of the recipe's, of verl's or a user's preset, which stays as it is."""
    values = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return values if isinstance(values, dict) else {}


def verls_defaults() -> dict[str, Any]:
    """By their whole names, sections included."""
    return dict(walk(read_yaml(Path(in_verl(VERLS)))))


#: What is known of settings by name.
TABLES = read_yaml(Path(__file__).with_name("settings.yaml"))


class Names:
    """The settings of a main program: ``spiral_trainer`` or ``eval``."""

    def __init__(self, program: str) -> None:
        self._program = program
        if program == "eval":
            files = [CONFIG / "eval.yaml", *sorted(CONFIG.glob("engine/*.yaml"))]
        else:
            files = [Path(in_verl(VERLS)), CONFIG / f"{program}.yaml"]
            for group in ("hardware", "model", "loss"):
                files += sorted(CONFIG.glob(f"{group}/*.yaml"))
        self._tree: dict[str, Any] = {}
        for file in files:
            _merge(self._tree, read_yaml(file))
        self._tree.pop("defaults", None)
        if program != "eval":
            unlisted = OmegaConf.from_dotlist([f"{setting}=null" for setting in TABLES["unlisted"]])
            _merge(self._tree, OmegaConf.to_container(unlisted))
        self._tree["hydra"] = {**OmegaConf.to_container(OmegaConf.structured(HydraConf)), "env": {}}

    def refuse_unknown(
        self, config: DictConfig, overrides: Sequence[str] = (), hydra_config: DictConfig | None = None
    ) -> None:
        """Refuse the first key that nobody reads, and the first value that is not the section or list that it must be.

        ConfigError names the nearest setting that exists, with the key as the user wrote it in ``overrides`` or in a
        file of those that Hydra's own node names.
        """
        values: Any = OmegaConf.to_container(config, resolve=False)
        if hydra_config is not None:
            values["hydra"] = OmegaConf.to_container(hydra_config, resolve=False)
        for override in overrides:
            key = _key(override)
            fixed = not {"hydra", *TABLES["free"]} & {*key.split(".")}
            if override.startswith("~") and fixed and self.knows(key):
                raise ConfigError(f"{override}: a setting cannot be taken away; leave {override} out")
        for key, value, kind in _of_another_kind(values, self._tree):
            raise ConfigError(f"{key}={written(value)}: must be {kind}")
        for key in self._unknown(values, self._tree):
            given = [o for o in overrides if f"{_key(o)}.".startswith(f"{key}.")]
            file = None if given or hydra_config is None else of_presets(hydra_config).get(key)
            raise ConfigError(f"{file}: " * (file is not None) + self.unknown((*given, key)[0]))

    def unknown(self, override: str) -> str:
        """The message that refuses ``key=value``."""
        key = _key(override)
        if key in GROUPS[self._program]:
            return f"{override}: its file must begin with `# @package _global_`, and have settings"
        near = self.nearest(key)
        if near == key:
            return f"{override}: must be in its section, each with a line of its own"
        near = self.meant(key, override.partition("=")[2]) or near
        mend = f"did you mean `{near}`?" if near else "--cfg job prints all settings"
        return f"{override}: there is no such setting; {mend}"

    def meant(self, key: str, value: str) -> str | None:
        """The override that is often meant by a name that is none."""
        meant = TABLES["meant"][self._program]
        return str(text).format(value or "...") if (text := meant.get(key) or meant.get(_last(key))) else None

    def knows(self, key: str) -> bool:
        """Whether somebody reads the setting, or it is a config group of the program's."""
        return key in GROUPS[self._program] or not any(
            self._unknown(OmegaConf.to_container(OmegaConf.from_dotlist([f"{key}=0"])), self._tree)
        )

    def _unknown(self, values: Mapping[str, Any], tree: Mapping[str, Any], place: str = "") -> Iterator[str]:
        for key, value in values.items():
            inner = tree.get(key)
            if key not in tree:
                yield f"{place}{key}"
            elif isinstance(value, Mapping) and isinstance(inner, Mapping) and key not in TABLES["free"]:
                yield from self._unknown(value, inner, f"{place}{key}.")

    def nearest(self, key: str) -> str | None:
        """The setting that was meant: one of the same last name, or nearest in its section or as a whole."""
        settings = {name: value for name, value in walk(self._tree) if _last(name) != "_target_"}
        known = [*settings, *GROUPS[self._program]]
        section, _, name = key.rpartition(".")
        # what is only a link to another setting comes last: it is seldom what a user sets
        namesakes = sorted((o for o in settings if _last(o) == name), key=lambda o: str(settings[o]).startswith("${"))
        siblings = {_last(other): other for other in known if other.rpartition(".")[0] == section}
        below = {_last(other): other for other in reversed(known) if other.startswith(f"{section}.")}
        if section and name in below:
            return below[name]
        if name in settings:
            return name
        if section and (near := get_close_matches(name, siblings, n=1)):
            return siblings[near[0]]
        if namesakes:
            return namesakes[0]
        whole = key.replace(".", "_")
        if joined := [other for other in settings if whole in _joined(other)]:
            return min(joined, key=lambda other: other.startswith("critic."))
        for others in (siblings, below):
            if near := get_close_matches(name, others, n=1):
                return others[near[0]]
        return next(iter(get_close_matches(key, known, n=1, cutoff=0.8)), None)


def _key(override: str) -> str:
    return override.lstrip("+~").split("=")[0].split("@")[0]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _joined(key: str) -> list[str]:
    """How somebody may write the ends of a name: optim_lr, actor_optim_lr, ..."""
    return ["_".join(key.split(".")[at:]) for at in range(key.count(".") + 1)]


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        held = into.get(key)
        if isinstance(value, dict):
            into[key] = held if isinstance(held, dict) else {}
            _merge(into[key], value)
        elif not isinstance(held, dict):
            into[key] = value


def _of_another_kind(
    values: Mapping[str, Any], tree: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Any, str]]:
    """Each value in the place of a section or a list, with what it must be; a link is looked at where it leads to."""
    for key, inner in tree.items():
        value = values.get(key, inner)
        if isinstance(value, str) and "${" in value:
            continue
        if isinstance(inner, Mapping):
            if not isinstance(value, Mapping):
                yield f"{place}{key}", value, "a mapping"
            else:
                yield from _of_another_kind(value, inner, f"{place}{key}.")
        elif isinstance(inner, list) and not isinstance(value, list | str | None if key in TABLES["or_text"] else list):
            yield f"{place}{key}", value, f"a list, such as [{', '.join(map(str, inner)) or '...'}]"


def walk(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting and every section, by its whole name, with its value."""
    for key, value in values.items():
        yield f"{place}{key}", value
        if isinstance(value, Mapping):
            yield from walk(value, f"{place}{key}.")


def values(config: DictConfig, resolve: bool) -> dict[str, Any]:
    """Every setting by its name; without ``resolve`` as it is written: one that follows from another is a link."""
    container: Any = OmegaConf.to_container(config, resolve=resolve)
    return {name: value for name, value in walk(container) if not isinstance(value, Mapping)}


def of_presets(hydra_config: DictConfig) -> dict[str, str]:
    """Each setting of the presets that were chosen, with the file that has it."""
    if "runtime" not in hydra_config:
        return {}
    folders = [Path(source.path) for source in hydra_config.runtime.config_sources if source.schema == "file"]
    found: dict[str, str] = {}
    for group, option in hydra_config.runtime.choices.items():
        files = [folder / group / f"{option}.yaml" for folder in folders]
        if (file := next(filter(Path.is_file, files), None)) is not None:
            found |= {setting: str(file) for setting, _ in walk(read_yaml(file))}
    return found
