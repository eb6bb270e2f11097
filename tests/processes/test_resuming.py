"""Which checkpoint a start goes on from, where it was told one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.starting import choose_checkpoint
from recipe.spiral.storage.checkpoints import name_latest


def told(path: object, own: object = "checkpoints", **trainer: object) -> Any:
    """The config of a start with ``trainer.resume_from_path``; ``own``: the folder of its own checkpoints."""
    made = {"resume_mode": "resume_path", "resume_from_path": path and str(path), "default_local_dir": str(own)}
    made |= trainer
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
        choose_checkpoint(config)
        assert config.trainer.resume_from_path == whole
        assert int(whole.split("global_step_")[-1]) == 10
    for config in (told(None, resume_mode="auto"), OmegaConf.create({})):
        choose_checkpoint(config)
        assert OmegaConf.select(config, "trainer.resume_from_path") is None


def test_a_run_that_began_at_anothers_checkpoint_goes_on_from_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command, given again after a kill: it goes back to the beginning only while nothing was saved."""
    first, own = tmp_path / "first/checkpoints/global_step_10", tmp_path / "second/checkpoints"
    config = told(first, own)
    choose_checkpoint(config)
    assert config.trainer.resume_mode == "resume_path" and capsys.readouterr().out == ""
    own.mkdir(parents=True)
    name_latest(own, 300)
    choose_checkpoint(config)
    assert config.trainer.resume_mode == "auto"
    assert f"has checkpoints of its own in {own}, and goes on from the last of them" in capsys.readouterr().out


def test_a_run_goes_back_to_a_checkpoint_of_its_own_also_by_a_link(tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "run/checkpoints", tmp_path / "large_disk"
    own.mkdir(parents=True)
    elsewhere.mkdir()
    (own / "global_step_10").symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    name_latest(own, 40)
    for path in (own / "global_step_10", tmp_path / "link/checkpoints/global_step_10"):
        config = told(path, own)
        choose_checkpoint(config)
        assert config.trainer.resume_mode == "resume_path"
