"""A result of an experiment on learning that says only what a test is about."""

from __future__ import annotations

from typing import Any

from experiments.result import Result


def made_result(**fields: Any) -> Result:
    told: dict[str, Any] = {
        "name": "kuhn",
        "title": "Games",
        "command": "true",
        "commit": "0",
        "seeds": (0,),
        "games": 2,
        "minutes": 1.0,
        "settings": {},
        "rows": [{"arm": "self-play"}],
        "figures": {},
    }
    return Result(**{**told, **fields})
