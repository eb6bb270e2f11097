"""Members of a pool that come from elsewhere: which are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.opponents.elsewhere import members_of
from recipe.spiral.opponents.pool import snapshot_name
from tests.opponents.folders import adapter, cut, model
from tests.storage.test_checkpoints import save


def found(path: Path, **more: Any) -> list[tuple[int, str, str]]:
    return [(step, folder.name, form) for step, folder, form in members_of(path, **more)]


def checkpoint(checkpoints: Path, step: int) -> Path:
    folder = save(checkpoints, step)
    huggingface = folder / "actor/huggingface"
    huggingface.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (huggingface / name).write_text("{}")
    return folder


def test_a_runs_checkpoints(tmp_path: Path) -> None:
    for step in (100, 20, 60):
        checkpoint(tmp_path / "checkpoints", step)
    model(tmp_path / "model")
    (tmp_path / "checkpoints/unfinished/global_step_120/actor").mkdir(parents=True)
    everything = [(step, f"global_step_{step}", "checkpoint") for step in (20, 60, 100)]
    assert found(tmp_path) == found(tmp_path / "checkpoints") == everything
    assert found(tmp_path / "checkpoints/global_step_60") == everything[1:2]


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        ({}, [0, 10, 20, 30, 40, 50]),
        ({"start": 10, "interval": 20}, [10, 30, 50]),
        ({"start": 5, "interval": 15, "size": 2}, [10, 30]),
    ],
)
def test_which_steps_are_taken(tmp_path: Path, more: dict[str, int], taken: list[int]) -> None:
    """Here the pool of another run."""
    adapter(tmp_path / "pool/base")
    for step in (10, 20, 30, 40, 50):
        adapter(tmp_path / "pool" / snapshot_name(step))
    assert [step for step, _, _ in members_of(tmp_path, **more)] == taken
    assert found(tmp_path, **more) == found(tmp_path / "pool", **more)


def test_a_folder_of_exports(tmp_path: Path) -> None:
    model(tmp_path / "Qwen3-4B")
    adapter(tmp_path / "with-lora")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    assert found(tmp_path) == [(0, "Qwen3-4B", "hf"), (1, "with-lora", "adapter")]
    assert found(tmp_path / "Qwen3-4B") == [(0, "Qwen3-4B", "hf")]


def test_folders_that_hold_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^fsp\.pool=.*/none"):
        members_of(tmp_path / "none", setting="fsp.pool")
    with pytest.raises(ValueError, match="path="):
        members_of(tmp_path)
    adapter(tmp_path / "a-10")
    with pytest.raises(ValueError, match="step 11"):
        members_of(tmp_path, start=11)


def test_what_is_taken_must_be_whole(tmp_path: Path) -> None:
    folder = model(tmp_path / "m/a-1")
    cut("model-00001-of-00002.safetensors")(folder)
    adapter(tmp_path / "m/a-2")
    with pytest.raises(ValueError, match=r"a-1 is not whole: missing or cut short: model-00001-of-00002"):
        members_of(tmp_path / "m")
    assert found(tmp_path / "m", start=2) == [(2, "a-2", "adapter")]
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text("{}")
    (old / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match=r"pytorch's \*\.bin are not read: save it as safetensors"):
        members_of(old)
    half = checkpoint(tmp_path / "run/checkpoints", 5)
    (half / "actor/model_world_size_1_rank_0.pt").unlink()
    with pytest.raises(ValueError, match=r"not whole|missing"):
        members_of(tmp_path / "run")
