"""The packaged presets and the user's example compose and pass the checks; every setting has a comment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from recipe.spiral.checks import check
from recipe.spiral.checks.names import Names
from tests.made_configs import CONFIG, with_vllm_and_gpus

#: The user's folder of this project.
USERS = Path(__file__).resolve().parents[1] / "config"
PRESETS = [file.stem for folder in (CONFIG, USERS) for file in sorted((folder / "experiment").glob("*.yaml"))]
SETTINGS = sorted(
    file for file in CONFIG.rglob("*.yaml") if not {"experiment", "sweep"} & set(file.parts[len(CONFIG.parts) :])
)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)
    hardware = "gpu" if preset.startswith("qwen3") else "cpu"
    paths = f"hydra.searchpath=[{OmegaConf.load(CONFIG / 'spiral_trainer.yaml').hydra.searchpath[0]},file://{USERS}]"
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose(
            "spiral_trainer", overrides=[paths, f"+experiment={preset}", f"hardware={hardware}", f"run_dir={tmp_path}"]
        )
    Names("spiral_trainer").refuse_unknown(config)
    check(config)
    assert (config.fsp.enabled, config.ref_update_freq is not None) == (preset == "pool", preset == "regularised")
    # a change of the reference after the last step would train nothing
    assert config.ref_update_freq is None or config.ref_update_freq < config.trainer.total_training_steps


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: str(file.relative_to(CONFIG)))
def test_every_setting_has_a_comment_above_it(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    bare = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if ": " in line and not line.lstrip().startswith(("#", "- ", "_target_")) and not above.lstrip().startswith("#")
    ]
    assert not bare
