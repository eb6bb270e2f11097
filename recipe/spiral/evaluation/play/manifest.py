"""What an evaluation is, kept beside its games: games played with other settings must not be counted with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from ...storage.disk import write_whole
from .matchups import Chance

MANIFEST = "manifest.json"
VERSION = 1


class OtherEvaluation(ValueError):
    """A folder holds an evaluation with other settings; the message says what differs."""


@dataclass(frozen=True)
class Manifest:
    """What decides the games of an evaluation, and their results. Everything is kept as JSON: no secrets.

    Attributes:
        seed: the evaluation's.
        chance: which games have the same.
        policies: by name, what identifies each: its kind, the resolved path, a fingerprint of its weights.
        settings: what else must not change: rules, sampling, prompts.
    """

    seed: int
    chance: Chance
    policies: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        # as it will be read: tuples are lists, keys are text
        for field in ("policies", "settings"):
            object.__setattr__(self, field, json.loads(json.dumps(getattr(self, field), allow_nan=False)))

    def going_on_from(self, earlier: Manifest) -> Manifest:
        """This evaluation as what an earlier one becomes: with the policies of both.

        Raises:
            OtherEvaluation: something that both name is not the same.
        """
        known = {name: identity for name, identity in self.policies.items() if name in earlier.policies}
        before = {name: earlier.policies[name] for name in known}
        differences = [
            *_differences({"seed": earlier.seed, "chance": earlier.chance}, {"seed": self.seed, "chance": self.chance}),
            *_differences({"policies": before}, {"policies": known}),
            *_differences({"settings": earlier.settings}, {"settings": self.settings}),
        ]
        if differences:
            raise OtherEvaluation("\n".join(differences))
        return Manifest(self.seed, self.chance, {**earlier.policies, **self.policies}, self.settings)

    def write(self, folder: Path) -> None:
        text = json.dumps({"version": VERSION, **asdict(self)}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(folder / MANIFEST, text + "\n")

    @classmethod
    def read(cls, folder: str | Path) -> Manifest:
        """A folder's.

        Raises:
            FileNotFoundError: it has none.
            ValueError: it cannot be read.
        """
        file = Path(folder) / MANIFEST
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if data.pop("version") != VERSION:
                raise ValueError("it is of another version of this program")
            manifest = cls(**data)
            if not isinstance(manifest.seed, int) or manifest.chance not in get_args(Chance):
                raise ValueError("its seed or its chance is none")
            if not isinstance(manifest.policies, dict) or not isinstance(manifest.settings, dict):
                raise ValueError("its policies or its settings are none")
        except FileNotFoundError:
            raise
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{file} cannot be read ({error}): without it nobody knows what the games beside it are; put it back, "
                "or evaluate into another folder"
            ) from error
        return manifest


def _differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Line by line, what is not the same."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            inner = f"{path}.{key}" if path else key
            if key not in now:
                yield f"{inner}: {_short(before[key])} there, not set now"
            elif key not in before:
                yield f"{inner}: not set there, {_short(now[key])} now"
            else:
                yield from _differences(before[key], now[key], inner)
    elif before != now:
        yield f"{path}: {_short(before)} there, {_short(now)} now"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
