"""Somebody who plays in an evaluation, and the prompts of those with weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...opponents.more_kinds import check
from .policy_weights import Run

#: Tokens of the longest prompt and response in SPIRAL.
LENGTHS = (2048, 4096)


@dataclass(frozen=True)
class Policy:
    """Somebody who plays.

    Attributes:
        name: in records and tables.
        kind: "model", "adapter", or a fixed player's.
        identity: for the manifest: what must be the same when the evaluation is continued.
        model: the folder of the model that an engine must serve; None for those without weights.
        adapter: the folder of the LoRA adapter on that model; None: there is none.
        template, style: of its prompts.
        by_game: a game's template and style, where they differ from these.
        games: the ids of the games that it plays; None: all that it can.
        settings: a fixed player's.
        lengths: its longest prompt and response, in tokens, where the evaluation does not set them.
        texts: the folder of its tokenizer and end tokens, where they are with neither its model nor its adapter.
        chat_template_kwargs: further arguments of its tokenizer's chat template.
        run: the run whose snapshot it is; None: it is no snapshot.
    """

    name: str
    kind: str
    identity: Mapping[str, Any]
    model: Path | None = None
    adapter: Path | None = None
    template: str = "chat"
    style: str = "state"
    by_game: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    games: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[int, int] = LENGTHS
    texts: Path | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    run: str | None = None

    @property
    def tokenizer(self) -> Path:
        assert self.model is not None
        if self.texts is not None:
            return self.texts
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file():
            return self.adapter
        return self.model

    def prompt(self, game: str) -> tuple[str, str]:
        own = self.by_game.get(game, {})
        return own.get("template", self.template), own.get("style", self.style)

    def unable(self, game: str) -> str | None:
        """Why it does not play a game; None: it does."""
        if self.games is not None and game not in self.games:
            return f"{self.name} is not to play {game}"
        if self.model is None:
            try:
                check(self.kind, self.settings, [game])
            except ValueError as error:
                return str(error)
        return None


@dataclass(frozen=True)
class Prompts:
    """The evaluation's template and style. None: those of the policy's run, or "chat" and "state".

    ``chat_template_kwargs`` come before those of the run, key by key.
    """

    template: str | None = None
    style: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def of(self, entry: Mapping[str, Any], run: Run) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        """The template and style of a policy's entry in the config, and those that its run has for single games.

        The latter count unless the entry or the evaluation sets them for all games.
        """
        chosen = {"template": entry.get("template") or self.template, "style": entry.get("style") or self.style}
        prompt = {
            "template": str(chosen["template"] or run.template or "chat"),
            "style": str(chosen["style"] or run.style or "state"),
        }
        own = {
            game: {key: value for key, value in of_game.items() if not chosen[key]}
            for game, of_game in run.by_game.items()
        }
        return prompt, {game: of_game for game, of_game in own.items() if of_game}
