"""Which checkpoint a start goes on from, where it was told one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.running.resuming import name_checkpoint


def told(path: object, **trainer: object) -> Any:
    """The config of a start with ``trainer.resume_from_path``."""
    made = {"resume_mode": "resume_path", "resume_from_path": path and str(path), **trainer}
    return OmegaConf.create({"trainer": made})


def test_a_checkpoint_is_named_as_verl_and_other_processes_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl reads the step behind the last ``global_step_``, and a slash with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    whole = str(tmp_path / "global_step_10")
    for path in ("global_step_10", "global_step_10/", "./global_step_10//", "~/global_step_10", f"{whole}/"):
        config = told(path)
        name_checkpoint(config)
        assert config.trainer.resume_from_path == whole
        assert int(whole.split("global_step_")[-1]) == 10
    for config in (told(None, resume_mode="auto"), OmegaConf.create({})):
        name_checkpoint(config)
        assert OmegaConf.select(config, "trainer.resume_from_path") is None
