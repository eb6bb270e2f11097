"""Somebody who plays in an evaluation, and how those with weights are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..opponents.more_kinds import check

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
        asked: how it is asked; what nobody says is "chat", "state" and ``LENGTHS``.
        games: the ids of the games that it plays; None: all that it can.
        settings: a fixed player's.
        texts: the folder of its tokenizer and end tokens, where they are with neither its model nor its adapter.
        run: the run whose snapshot it is; None: it is no snapshot.
    """

    name: str
    kind: str
    identity: Mapping[str, Any]
    model: Path | None = None
    adapter: Path | None = None
    asked: Asked = field(default_factory=Asked)
    games: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    texts: Path | None = None
    run: str | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        return self.asked.lengths or LENGTHS

    @property
    def template(self) -> str:
        return self.asked.template or "chat"

    @property
    def tokenizer(self) -> Path:
        assert self.model is not None
        if self.texts is not None:
            return self.texts
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file():
            return self.adapter
        return self.model

    def prompt(self, game: str) -> tuple[str, str]:
        """The template and the style of its prompts in a game."""
        own = self.asked.by_game.get(game, {})
        return own.get("template", self.template), own.get("style", self.asked.style or "state")

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
