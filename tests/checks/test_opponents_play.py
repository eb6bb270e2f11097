"""Opponents that cannot play are refused before anything starts, by their setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.opponents.model_files import form_of
from tests.made_configs import config, without_weights

POOL = "fsp.enabled=true"


def refused(tmp_path: Path, setting: str, *overrides: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}"):
        check(config(tmp_path, *overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        [POOL, "fsp.initial=[base]"],
        [POOL, "opponents=[{kind: random, share: 0.25}, {kind: perfect, share: 0.25}]"],
        ["opponents=[{kind: perfect, share: 1.0, games: [TicTacToe]}]"],
        ["opponents=[{kind: random, name: weak, share: 0.1}, {kind: random, name: weaker, share: 0.1}]"],
        ["opponents=[{kind: perfect, name: clever, alpha: 0.0}]", "validation.opponents=[clever]"],
    ],
    ids=str,
)
def test_what_can_play_passes(tmp_path: Path, overrides: list[str]) -> None:
    check(config(tmp_path, *overrides))


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ([POOL, "fsp.ratio=0.9", "opponents=[{kind: random, share: 0.2}]"], "fsp.ratio"),
        (["opponents=[{kind: random, share: 0.6}, {kind: perfect, share: 0.6}]"], "opponents: their shares"),
        ([POOL, "fsp.initial=[./nowhere]"], "fsp.initial"),
        ([POOL, "fsp.size=1", "fsp.initial=[base]"], "fsp.size"),
        (["opponents=[{kind: clever, share: 0.1}]"], "opponents: clever: kind"),
        (["opponents=[{kind: random, share: 0.1, strength: 3}]"], "opponents: random: kind=random"),
        (["games=[Snake]", "opponents=[{kind: perfect, share: 0.1}]"], "opponents: perfect"),
        (["opponents=[{kind: random, games: [Chess]}]"], "opponents: random: unknown game"),
        (["opponents=[{kind: model, share: 0.1}]"], "opponents: model: path"),
        (["opponents=[{kind: random, name: step_000005, share: 0.1}]"], "opponents: step_000005: name"),
        (["games=[Snake]", "validation.opponents=[perfect]"], "validation.opponents"),
    ],
    ids=str,
)
def test_what_cannot_play_is_refused(tmp_path: Path, overrides: list[str], setting: str) -> None:
    refused(tmp_path, setting, *overrides)


def test_members_are_of_the_policys_kind_and_whole(tmp_path: Path) -> None:
    (folder := tmp_path / "exported").mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    without_weights(folder / "model.safetensors")
    assert form_of(folder) == "hf"
    given = [POOL, f"fsp.initial=[{folder}]", f"opponents=[{{kind: model, name: old, share: 0.1, path: {folder}}}]"]
    check(config(tmp_path, *given))
    refused(tmp_path, "opponents: old: path", *given, "actor_rollout_ref.model.lora_rank=8")
    refused(tmp_path, "fsp.initial", *given[:2], "actor_rollout_ref.model.lora_rank=8")
    (folder / "model.safetensors").write_bytes(b"")
    refused(tmp_path, "opponents: old: path", *given)


def test_on_a_cpu_ray_counts_the_devices_of_opponents_engines(tmp_path: Path) -> None:
    """Of two members in a step twice, as games go on over several steps."""
    own = [POOL, "fsp.members_per_step=2", "opponent_engine.devices=own", "trainer.v1.trainer_mode=separate_async"]
    assert config(tmp_path, *own).ray_kwargs.ray_init.num_gpus == 1 + 1 + 4
    assert config(tmp_path, POOL).ray_kwargs.ray_init.num_gpus == 1
