"""What an evaluation is, stored beside its games: games played with other settings must not be counted with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .matchups import Randomness


class OtherEvaluation(ValueError):
    """A folder holds an evaluation with other settings; the message says what differs."""


@dataclass(frozen=True)
class Manifest:
    """What decides the games of an evaluation, and their results. Everything is stored as JSON: no secrets.

    Attributes:
        seed: the evaluation's.
        randomness: which games have the same.
        policies: by name, what identifies each: its kind, the resolved path, a fingerprint of its weights.
        settings: what else must not change: rules, sampling, prompts; None for what nothing has used.
    """

    seed: int
    randomness: Randomness
    policies: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        # As it will be read: tuples are lists, and keys are texts.
        for field in ("policies", "settings"):
            object.__setattr__(self, field, json.loads(json.dumps(getattr(self, field), allow_nan=False)))

    def merged_with(self, earlier: Manifest) -> Manifest:
        """The manifest of an earlier evaluation that is continued: it has the policies of both.

        Raises:
            OtherEvaluation: something that both name is not the same.
        """
        known = {name: identity for name, identity in self.policies.items() if name in earlier.policies}
        before = {name: earlier.policies[name] for name in known}
        changes = list(
            differences(
                {"seed": earlier.seed, "randomness": earlier.randomness, "policies": before},
                {"seed": self.seed, "randomness": self.randomness, "policies": known},
            )
        )
        settings, before = _filled(self.settings, earlier.settings), _filled(earlier.settings, self.settings)
        changes += differences({"settings": before}, {"settings": settings})
        if changes:
            raise OtherEvaluation("\n".join(changes))
        return Manifest(self.seed, self.randomness, {**earlier.policies, **self.policies}, settings)


def _filled(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """With the other's value of each setting that nothing has used."""
    return {name: other.get(name) if value is None else value for name, value in settings.items()}


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Line by line, what is not the same in two values as JSON has them."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            inner = f"{path}.{key}" if path else key
            if key not in now:
                yield f"{inner}: {_short(before[key])} there, not set now"
            elif key not in before:
                yield f"{inner}: not set there, {_short(now[key])} now"
            else:
                yield from differences(before[key], now[key], inner)
    elif before != now:
        yield f"{path}: {_short(before)} there, {_short(now)} now"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
