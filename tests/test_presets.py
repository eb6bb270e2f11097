"""The presets of ``config/`` compose, and pass the checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from recipe.spiral.checks import check
from tests.made_configs import CONFIG, with_vllm_and_gpus

ROOT = Path(__file__).resolve().parents[1] / "config"
PRESETS = sorted(file.stem for file in (ROOT / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)
    hardware = "gpu" if preset.startswith("qwen3") else "cpu"
    paths = f"hydra.searchpath=[{OmegaConf.load(CONFIG / 'spiral_trainer.yaml').hydra.searchpath[0]},file://{ROOT}]"
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose(
            "spiral_trainer", overrides=[paths, f"+experiment={preset}", f"hardware={hardware}", f"run_dir={tmp_path}"]
        )
    check(config)
    assert (config.fsp.enabled, config.ref_update_freq is not None) == (preset == "pool", preset == "regularised")
    # a change of the reference after the last step would train nothing
    assert config.ref_update_freq is None or config.ref_update_freq < config.trainer.total_training_steps
