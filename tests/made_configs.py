"""The real config with overrides, for tests of what is wrong with one."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.spiral import main_spiral

#: The config's resolvers come with the module that it lies beside.
CONFIG = Path(main_spiral.__file__).parent / "config"


@cache
def composed(hardware: str, model: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG), version_base=None):
        return compose("spiral_trainer", overrides=[f"hardware={hardware}", f"model={model}"])


def config(tmp_path: Path, *overrides: str, hardware: str = "cpu", model: str = "tiny") -> DictConfig:
    """The real config; overrides are merged into a copy, because composing it anew takes half a second."""
    changes = OmegaConf.from_dotlist([f"run_dir={tmp_path / 'run'}", *overrides])
    merged = OmegaConf.merge(composed(hardware, model), changes)
    assert isinstance(merged, DictConfig)
    return merged


def with_vllm_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here is another test's matter."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *args: find_spec("json" if name == "vllm" else name, *args)
    )
