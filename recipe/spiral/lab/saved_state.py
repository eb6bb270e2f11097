"""Whether a checkpoint's ``spiral.json`` has the form that we write: a stranger's may say anything, and a run would go
on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..checks.schema import is_of
from ..storage.checkpoints import STATE_FILE, BrokenCheckpoint, read_state

_SHAPE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def checked_state(checkpoint: Path) -> dict[str, Any]:
    """A checkpoint's state. Raises BrokenCheckpoint: it cannot be read, or is of another form."""
    state = read_state(checkpoint)
    if wrong := _misfit(state, _SHAPE):
        raise BrokenCheckpoint(f"{checkpoint / STATE_FILE}: {wrong}")
    return state


def _misfit(value: Any, shape: Any, place: str = "") -> str:
    """What of a value, as JSON has it, is not of a shape; "": all is."""
    if isinstance(shape, dict) and isinstance(value, dict):
        kinds = {name.rstrip("!?"): kind for name, kind in shape.items()}
        if lacks := [name for name in shape if name.endswith("!") and name[:-1] not in value]:
            return f"{place}: lacks {lacks[0][:-1]}"
        there = [name for name in value if value[name] is not None or f"{name}?" not in shape]
        inside = [(name, kinds.get(name, kinds.get("*", "anything"))) for name in there]
    elif isinstance(shape, list) and isinstance(value, list) and len(shape) in (1, len(value)):
        inside = [(number, shape[number % len(shape)]) for number in range(len(value))]
    else:
        kind = shape if isinstance(shape, str) else "a mapping" if isinstance(shape, dict) else "a list"
        fits = shape == "anything" or (isinstance(shape, str) and is_of(value, shape))
        return "" if fits else f"{place}: must be {kind}{' of another length' * (type(shape) is type(value) is list)}"
    wrong = (_misfit(value[name], kind, f"{place}.{name}".lstrip(".")) for name, kind in inside)
    return next(filter(None, wrong), "")
