"""The estimate of memory: its parts follow from the model and the ranks, and it warns where it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.planning import devices, memory
from recipe.spiral.lab.planning.memory import GIB, Size, estimate, table
from tests.made_configs import config

#: Qwen3-4B-Base's.
SIZE = Size(4_022_468_096, 388_956_160, 100_930_816, 36, 2560, 30_720, 151_936, 2_064_384)


def of(tmp_path: Path, *overrides: str) -> Any:
    return config(tmp_path, "trainer.n_gpus_per_node=8", *overrides, hardware="gpu", model="hf")


def test_the_state_is_shared_by_the_ranks(tmp_path: Path) -> None:
    one, eight = (estimate(of(tmp_path, f"trainer.n_gpus_per_node={n}"), SIZE, 80 * GIB)["training"] for n in (1, 8))
    assert sum(one[name] for name in ("weights", "gradients", "optimizer")) == pytest.approx(16 * SIZE.parameters)
    assert eight["optimizer"] == one["optimizer"] / 8 and eight["logits"] == one["logits"]


def test_an_adapter_has_no_gradients_of_the_base(tmp_path: Path) -> None:
    lora = estimate(of(tmp_path, "actor_rollout_ref.model.lora_rank=64"), SIZE, 80 * GIB)["training"]
    assert lora["gradients"] == pytest.approx(4 * 64 * SIZE.adapter / 8)


def test_opponents_take_their_share(tmp_path: Path) -> None:
    playing = estimate(of(tmp_path, "fsp.enabled=true"), SIZE, 80 * GIB)["playing"]
    assert playing["opponents' engines"] == pytest.approx(0.2 * 80 * GIB)
    assert estimate(of(tmp_path), SIZE, 80 * GIB)["playing"]["opponents' engines"] == 0


@pytest.mark.parametrize(("gib", "warned"), [(80, False), (16, True)])
def test_what_does_not_fit_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gib: int, warned: bool) -> None:
    monkeypatch.setattr(devices, "gpu_memory", lambda: gib * GIB)
    lines = table(of(tmp_path), SIZE)
    assert (memory._MEND in lines[-1]) == warned and len(lines) == 3 + warned
