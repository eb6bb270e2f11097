"""Somebody who plays in an evaluation, and how those with weights are asked: as their entry says, otherwise as the
evaluation, otherwise as the run that trained them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ...games import id_of
from ...processes.composing import RECIPE
from ...storage.disk import read_json
from ...storage.run_files import config_file, load_config, setting
from ..models import MADE_FOR
from ..opponents import check

#: Tokens of the longest prompt and response in SPIRAL.
LENGTHS = (2048, 4096)


@dataclass(frozen=True)
class Asked:
    """How a policy is asked, as far as its entry, the evaluation or its run says it.

    Attributes:
        template, style: of its prompts.
        by_game: a game's template and style, where they differ from these.
        chat_template_kwargs: further arguments of its tokenizer's chat template.
        lengths: its longest prompt and response, in tokens.
    """

    template: str | None = None
    style: str | None = None
    by_game: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[int, int] | None = None

    def over(self, other: Asked) -> Asked:
        """This first, and the other where this says nothing. What the other says of single games counts unless this
        says it of all."""
        by_game = {
            game: {key: value for key, value in said.items() if getattr(self, key) is None}
            for game, said in other.by_game.items()
        }
        return Asked(
            self.template or other.template,
            self.style or other.style,
            {game: said for game, said in by_game.items() if said},
            {**other.chat_template_kwargs, **self.chat_template_kwargs},
            self.lengths or other.lengths,
        )


@dataclass(frozen=True)
class Policy:
    """Somebody who plays.

    Attributes:
        name: in records and tables.
        kind: "model", "adapter", or a fixed player's.
        identity: for the manifest: what must be the same when the evaluation is continued.
        model: the folder of the model that an engine must serve; None for those without weights.
        adapter: the folder of the LoRA adapter on that model; None: there is none.
        asked: how it is asked; what nobody says is "chat", "state" and ``LENGTHS``, or less where the model has fewer
            positions.
        settings: a fixed player's.
        texts: the folder of its tokenizer and end tokens, where they are with neither its model nor its adapter.
    """

    name: str
    kind: str
    identity: Mapping[str, Any]
    model: Path | None = None
    adapter: Path | None = None
    asked: Asked = field(default_factory=Asked)
    settings: Mapping[str, Any] = field(default_factory=dict)
    texts: Path | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        if self.asked.lengths is not None or self.model is None:
            return self.asked.lengths or LENGTHS
        config = read_json(self.model / "config.json")
        stretched = any("factor" in (config.get(key) or ()) for key in ("rope_scaling", "rope_parameters"))
        positions = sum(LENGTHS) if stretched else int(config.get("max_position_embeddings") or sum(LENGTHS))
        prompt = min(LENGTHS[0], positions // 2)
        return prompt, min(LENGTHS[1], positions - prompt)

    @property
    def template(self) -> str:
        return self.asked.template or "chat"

    @property
    def tokenizer(self) -> Path:
        """The folder that its tokenizer is in."""
        assert self.model is not None
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file():
            return self.texts or self.adapter
        return self.texts or self.model

    def prompt(self, game: str) -> tuple[str, str]:
        """The template and the style of its prompts in a game."""
        own = self.asked.by_game.get(game, {})
        return own.get("template", self.template), own.get("style", self.asked.style or "state")

    def unable(self, game: str) -> str | None:
        """Why it does not play a game; None: it does."""
        try:
            if self.model is None:
                check(self.kind, self.settings, [game])
        except ValueError as error:
            return str(error)
        return None


# -- what a run says ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What an evaluation takes from a run's config, where there is one: its folder's name, how it asks its policy, and
    the model that its training started from."""

    name: str
    asked: Asked = field(default_factory=Asked)
    model: str | None = None


def run_of(path: Path) -> Run:
    """The run that a folder is, or that it is a part of (its ``checkpoints``, its ``pool``, one of the snapshots)."""
    return next((_run(folder.name, config) for folder, config in configs_of(path)), Run(path.name))


def run_of_embedded(model: str) -> Run:
    """What runs that start from an embedded model have, unless they set it otherwise: its config group's."""
    group = "tiny" if model in MADE_FOR else model
    return _run(model, load_config(RECIPE / "config" / "model" / f"{group}.yaml"))


def configs_of(path: Path) -> Iterator[tuple[Path, DictConfig]]:
    """The readable configs of runs that a folder can be a part of, nearest first, each with its run's folder."""
    for folder in (path, *path.parents[:2]):
        with suppress(OSError, ValueError):
            yield folder, load_config(config_file(folder))


def _run(name: str, config: DictConfig) -> Run:
    prompt, response = (setting(config, f"data.max_{part}_length") for part in ("prompt", "response"))
    asked = Asked(
        setting(config, "prompt.template"),
        setting(config, "prompt.style"),
        _by_game(setting(config, "games")),
        setting(config, "data.apply_chat_template_kwargs") or {},
        (prompt, response) if prompt and response else None,
    )
    return Run(name, asked, setting(config, "actor_rollout_ref.model.path"))


def _by_game(games: Any) -> dict[str, dict[str, str]]:
    """What the entries of a run's ``games`` say of prompts, by the games' ids; unknown games are left out."""
    prompts = {}
    for entry in games if isinstance(games, list) else ():
        said = {key: entry[key] for key in ("template", "style") if isinstance(entry, dict) and entry.get(key)}
        if said:
            with suppress(ValueError):
                prompts[id_of(str(entry.get("id")))] = said
    return prompts
