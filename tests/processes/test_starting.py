"""Which checkpoint a start goes on from, where it was told one; and what becomes of what it does not go on with."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.starting import choose_checkpoint, keep_date, set_aside
from recipe.spiral.storage.checkpoints import TRACKER
from recipe.spiral.storage.run_files import METRICS, MetricsFile
from tests.storage.test_checkpoints import save


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
    for config in (told(None, resume_mode="auto"),):
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
    (own / "global_step_300").mkdir(parents=True)
    choose_checkpoint(config)
    assert config.trainer.resume_mode == "auto"
    assert f"has checkpoints of its own in {own}, and goes on from the last of them" in capsys.readouterr().out


def written(run_dir: Path, *steps: int) -> dict[str, bytes]:
    """What a run wrote up to its last step; without it, only its first validation."""
    (run_dir / "games").mkdir(parents=True, exist_ok=True)
    for step in steps:
        MetricsFile(run_dir).log({"loss": 1.0}, step)
        (run_dir / "games" / f"train_step_{step:06d}.jsonl.gz").write_bytes(b"games")
    for file in ("train.log", "config.yaml", "tracked_as", "spent.json", "spiral.log", "pool/step_000000/weights"):
        (run_dir / file).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / file).write_text(file)
    return files(run_dir)


def files(run_dir: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run_dir)): file.read_bytes() for file in run_dir.rglob("*") if file.is_file()}


@pytest.mark.parametrize("how", ["disable", "auto", "fork", "own"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_begins_anew_removes_nothing(tmp_path: Path, how: str, elsewhere: bool) -> None:
    run_dir = tmp_path / "run"
    before = written(run_dir, 0, 1, 2)
    own = tmp_path / "disk" if elsewhere else run_dir / "checkpoints"
    if how != "auto":  # it was killed before its first checkpoint
        save(own, 2)
    saved = files(own)
    path = {"fork": save(tmp_path / "other", 4), "own": own / "global_step_2"}.get(how)
    config = told(path, own, resume_mode={"fork": "resume_path", "own": "resume_path"}.get(how, how))
    config.run_dir = str(run_dir)
    said = set_aside(config)
    if how == "own":
        assert said == [] and files(own) == saved
        return
    (aside,) = {path.name for path in run_dir.glob("earlier-*")}
    assert aside in said[0]
    kept = {name: data for name, data in files(run_dir / aside).items()}
    stayed = {"spent.json", "spiral.log"}
    assert kept == {name: data for name, data in before.items() if name not in stayed}
    assert {name for name in files(run_dir) if "earlier-" not in name} == stayed
    assert (files(own / aside) if saved else {}) == saved
    assert set_aside(config) == []


def test_before_a_first_step_nothing_is_put_aside(tmp_path: Path) -> None:
    """A run that fails again and again before its first step must not fill the disk with the initial policy."""
    config = told(None, tmp_path / "checkpoints", resume_mode="auto")
    config.run_dir = str(tmp_path)
    assert set_aside(config) == []
    written(tmp_path, 0)
    assert set_aside(config) == []
    MetricsFile(tmp_path).log({"loss": 1.0}, 1)
    assert len(set_aside(config)) == 1
    assert not (tmp_path / "pool").exists() and not (tmp_path / METRICS).exists()


def test_a_runs_prompts_tell_the_date_of_its_first_day(tmp_path: Path) -> None:
    template, checkpoints = "data.apply_chat_template_kwargs", tmp_path / "checkpoints"
    config = OmegaConf.create(
        {
            "run_dir": str(tmp_path),
            "trainer": {"resume_mode": "auto", "resume_from_path": None, "default_local_dir": str(checkpoints)},
            "data": {"apply_chat_template_kwargs": {}},
        }
    )
    dated: Any = SimpleNamespace(chat_template="{{ strftime_now('%d %b %Y') }}")
    keep_date(config, SimpleNamespace(chat_template="{{ messages }}"))  # type: ignore[arg-type]
    assert OmegaConf.select(config, template) == {}
    again = config.copy()
    keep_date(config, dated)
    assert OmegaConf.select(config, f"{template}.date_string") == date.today().strftime("%d %b %Y")
    config.data.apply_chat_template_kwargs.date_string = "05 Mar 2025"
    OmegaConf.save(config, tmp_path / "config.yaml")
    (checkpoints / "global_step_4").mkdir(parents=True)
    (checkpoints / TRACKER).write_text("4")
    keep_date(again, dated)
    assert OmegaConf.select(again, f"{template}.date_string") == "05 Mar 2025"
