"""What a resumed run shares with its checkpoint is refused otherwise; the rest is followed, and noted."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.checks import check
from recipe.spiral.checks.resumption import followed
from recipe.spiral.storage.checkpoints import kept_settings, seal
from recipe.spiral.storage.run_files import CHANGES, CONFIG
from tests.made_configs import config
from tests.storage.test_checkpoints import save

MODEL = "actor_rollout_ref.model"


def saved(tmp_path: Path, *overrides: str, step: int = 10, run: str = "run") -> Path:
    """A checkpoint of a run with these settings, which is in its folder as well."""
    made = config(tmp_path, *overrides, f"run_dir={tmp_path / run}")
    folder = save(tmp_path / run / "checkpoints", step, settings=kept_settings(made), run_dir=str(made.run_dir))
    OmegaConf.save(made, tmp_path / run / CONFIG)
    return folder


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "trainer.v1.trainer_mode=colocate_async",
        "batch_unit=turns",
        "data.train_batch_size=64",
        f"{MODEL}.lora_alpha=8",
        "algorithm.rae.decay=0.5",
        "trainer.n_gpus_per_node=2",
    ],
)
def test_what_is_kept(tmp_path: Path, change: str) -> None:
    before = (f"{MODEL}.lora_rank=4",) if "lora" in change else ()
    folder = saved(tmp_path, *before)
    check(config(tmp_path, *before))
    name = re.escape(change.split("=")[0].removesuffix(".decay"))
    for how in ([], ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]):
        with pytest.raises(ValueError, match=f"{name}.*cannot go on from"):
            check(config(tmp_path, *before, change, *how))
    check(config(tmp_path, "trainer.resume_mode=disable"))


def test_what_is_followed_is_noted_with_its_step(tmp_path: Path) -> None:
    rate, run = "actor_rollout_ref.actor.optim.lr", tmp_path / "run"
    saved(tmp_path, f"{rate}=1e-4")
    check(now := config(tmp_path, f"{rate}=5e-5"))
    assert followed(now) == [f"{rate}: 0.0001 up to step 10, 5e-05 from there on"]
    assert not (run / CHANGES).exists()
    followed(now, note=True)
    OmegaConf.save(now, run / CONFIG)
    save(run / "checkpoints", 20)
    assert followed(now, note=True) == []
    back = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={run}/checkpoints/global_step_10"]
    (line,) = followed(config(tmp_path, f"{rate}=1e-3", *back), note=True)
    assert line == f"{rate}: 0.0001 up to step 10, 0.001 from there on"
    noted = [json.loads(line) for line in (run / CHANGES).read_text().splitlines()]
    assert [(entry["step"], entry["changed"].get(rate)) for entry in noted] == [(10, [1e-4, 1e-3])]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "actor" / "optim_world_size_1_rank_0.pt").unlink()
    with pytest.raises(ValueError, match="optim_world_size_1_rank_0"):
        check(config(tmp_path))


def test_another_runs_checkpoints_are_not_gone_on_with(tmp_path: Path) -> None:
    folder = saved(tmp_path, run="other")
    where = f"trainer.default_local_dir={folder.parent}"
    with pytest.raises(ValueError, match=r"trainer\.default_local_dir"):
        check(config(tmp_path, where))
    check(config(tmp_path, where, f"run_dir={tmp_path / 'other'}"))
    check(config(tmp_path, "trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"))


def test_a_reference_of_before_is_not_dropped_without_a_word(tmp_path: Path) -> None:
    folder, compared = saved(tmp_path), "actor_rollout_ref.actor.use_kl_loss=true"
    shutil.copytree(folder / "actor", folder / "ref")
    seal(folder)
    check(config(tmp_path))
    check(config(tmp_path, compared, "ref_update_freq=1"))
    with pytest.raises(ValueError, match="ref_update_freq=null"):
        check(config(tmp_path, compared))


def test_a_model_may_have_moved_but_not_be_another(tmp_path: Path) -> None:
    before, other = tmp_path / "before", tmp_path / "other"
    for folder in (before, other):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    saved(tmp_path, f"{MODEL}.path={before}")
    check(config(tmp_path, f"{MODEL}.path={before}"))
    with pytest.raises(ValueError, match=rf"{MODEL}\.path={other}"):
        check(config(tmp_path, f"{MODEL}.path={other}"))
    before.rename(tmp_path / "moved")
    check(config(tmp_path, f"{MODEL}.path={tmp_path / 'moved'}"))
