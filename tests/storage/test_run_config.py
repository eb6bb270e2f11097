"""The config that a run's folder keeps is read without a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.storage.run_files import load_config, setting


def test_a_setting_is_as_json_has_it() -> None:
    config = OmegaConf.create({"games": ["Nim"], "seed": "${nowhere}"})
    assert setting(config, "games") == ["Nim"] and type(setting(config, "games")) is list
    assert setting(config, "seed") is setting(config, "model.path") is setting(None, "games") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    for content in (b"a: [", b"\xff", b"7", b"[" * 5000):
        (tmp_path / "config.yaml").write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.yaml: is damaged: "):
            load_config(tmp_path / "config.yaml")
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.yaml")


def test_a_few_lines_cannot_stand_for_a_text_of_any_length(tmp_path: Path) -> None:
    file, names = tmp_path / "config.yaml", [f"a{number}" for number in range(60)]
    file.write_text("a: x\n" + "".join(f"a{name}: ${{{name}}}${{{name}}}\n" for name in ["a", *names]))
    assert setting(load_config(file), "a") == "x" and setting(load_config(file), "aa59") is None


def test_a_config_with_aliases_is_damaged(tmp_path: Path) -> None:
    """Some hundred bytes of them stand for gigabytes."""
    file = tmp_path / "config.yaml"
    file.write_text("a: &a [x, x]\nb: [*a, *a]\n")
    with pytest.raises(ValueError, match=r"config\.yaml"):
        load_config(file)
