"""A model's responses by vLLM, for models that transformers would be slow with. It is the evaluation's engine."""

from __future__ import annotations

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ..evaluation.policies.engine import EngineSettings, VLLMEngine
from ..running.composing import RECIPE
from ..running.launch import put_on_path, set_environment


def start(model: Path, adapter: Path | None, max_model_len: int) -> VLLMEngine:
    """An engine with the settings that an evaluation has on this machine.

    Args:
        model: its folder.
        adapter: the folder of a LoRA adapter on it.
        max_model_len: of prompt and response together, in tokens.

    Raises:
        ImportError: vLLM is not installed.
        EngineFailure: it does not start.
    """
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        config = compose("eval")
    set_environment(OmegaConf.to_container(config.environment, resolve=True))
    put_on_path(RECIPE.parents[1])
    settings = EngineSettings.model_validate(OmegaConf.to_container(config.engine, resolve=True))
    adapters = () if adapter is None else (adapter,)
    return VLLMEngine(model, adapters, max_model_len, settings)
