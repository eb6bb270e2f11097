"""Whether every setting that is true or false is one of the two.

Anything else counts as true wherever it is read (``records.tokens=maybe``, ``trainer.val_before_train=off``), which is
hardly what was meant.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from .errors import require
from .values import leaves

_OURS = Path(__file__).parents[1] / "config" / "spiral_trainer.yaml"
#: verl's defaults in one file, in its folder.
VERLS = "trainer/config/_generated_ppo_trainer.yaml"


def _booleans(config: DictConfig) -> None:
    values = OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    ours, verls = settings()
    for setting, value in leaves(values):
        linked = isinstance(value, str) and "${" in value  # to a setting that is looked at itself
        if setting not in ours | verls or linked or (value is None and setting not in ours):
            continue
        written = "null" if value is None else value
        require(isinstance(value, bool), f"{setting}={written}: must be true or false")


@cache
def settings() -> tuple[frozenset[str], frozenset[str]]:
    """Those that are true or false where nobody sets them: SPIRAL's, and verl's."""
    verl = importlib.util.find_spec("verl")
    assert verl is not None and verl.origin is not None, "verl is installed with SPIRAL"
    return _in_file(_OURS), _in_file(Path(verl.origin).parent / VERLS)


def _in_file(file: Path) -> frozenset[str]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values = yaml.load(file.read_text(encoding="utf-8"), loader)
    return frozenset(setting for setting, value in leaves(values) if isinstance(value, bool))


PARTS = (_booleans,)
