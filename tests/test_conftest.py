"""What a killed session of these tests left is cleaned up by the next; and what they spare Hydra is not missed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.conftest import clean_up_after_killed
from tests.made_configs import CONFIG


def test_only_what_a_dead_session_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name, owner in (("killed", dead.pid), ("at-work", os.getpid()), ("ended", None)):
        (tmp_path / f"pytest-{name}").mkdir()
        if owner is not None:
            (tmp_path / f"pytest-{name}" / ".lock").write_text(str(owner))
    clean_up_after_killed(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["pytest-at-work", "pytest-ended"]


def test_no_config_file_sets_hydras_mode() -> None:
    """``composed_once`` does not look for it there."""
    files = [*CONFIG.parent.rglob("config/**/*.yaml"), *(Path(__file__).parents[1] / "config").rglob("*.yaml")]
    loaded = [made for file in files if isinstance(made := yaml.safe_load(file.read_text()), dict)]
    assert len(loaded) > 30
    assert not [made for made in loaded if "mode" in made.get("hydra", {})]


def test_hydra_parses_a_config_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``composed_once`` changes the class that Hydra uses, which it makes anew while it looks for plugins."""
    parsed = []
    load = OmegaConf.load
    monkeypatch.setattr(OmegaConf, "load", lambda file: (parsed.append(str(file.name)), load(file))[1])
    with initialize_config_dir(str(CONFIG), version_base=None):
        first = compose("spiral_trainer")
        parsed.clear()
        assert compose("spiral_trainer") == first
    assert not [file for file in parsed if file.startswith(str(CONFIG))]


def test_a_changed_file_is_composed_anew_and_nobody_shares_a_config(tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / "main.yaml").write_text(f"here: {value}\ndefaults: [_self_, group: one]\n")
        (tmp_path / "group").mkdir(exist_ok=True)
        (tmp_path / "group" / "one.yaml").write_text(f"there: {value}\n")
        with initialize_config_dir(str(tmp_path), version_base=None):
            for _ in range(2):
                config = compose("main")
                assert (config.here, config.group.there) == (value, value)
                config.group.there = 3
            assert compose("main", overrides=["group.there=4"]).group.there == 4
