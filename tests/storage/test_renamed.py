"""A run folder's old config is read under today's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.storage.renamed import load_config, rename, rename_override, setting


def test_an_old_config_has_todays_names(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("rules: {cut_off: mask, turn_cap: null}\nseed: ${nowhere}")
    config = load_config(tmp_path / "config.yaml")
    assert OmegaConf.to_container(config) == {"rules": {"truncated": "mask", "turn_cap": None}, "seed": "${nowhere}"}
    assert rename(config) == []


def test_a_setting_is_as_json_has_it() -> None:
    config = OmegaConf.create({"games": ["Nim"], "seed": "${nowhere}"})
    assert setting(config, "games") == ["Nim"] and type(setting(config, "games")) is list
    assert setting(config, "seed") is setting(config, "model.path") is setting(None, "games") is None


def test_what_is_no_mapping_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"config\.yaml: is not a config"):
        load_config(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ("rules.cut_off=mask", "rules.truncated=mask"),
        ("++rules.cut_off='a=b'", "rules.truncated='a=b'"),
        ("rules.cut_offs=mask", "rules.cut_offs=mask"),
        ("seed=1", "seed=1"),
        ("--cfg", "--cfg"),
    ],
)
def test_an_override_is_renamed(given: str, now: str) -> None:
    assert rename_override(given) == now
