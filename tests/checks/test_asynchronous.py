"""What the asynchronous modes refuse, by name, with the reason and what to do instead."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.storage.checkpoints import IN_FLIGHT, TRACKER, missing_parts, read_state, write_state
from tests.made_configs import config, with_vllm_and_gpus
from tests.storage.test_checkpoints import save

COLOCATE, SEPARATE = "trainer.v1.trainer_mode=colocate_async", "trainer.v1.trainer_mode=separate_async"
MODES = ("trainer.v1.colocate_async", "trainer.v1.separate_async")


@pytest.fixture(autouse=True)
def has_vllm_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)


@pytest.mark.parametrize("mode", [COLOCATE, SEPARATE])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["batch_unit=turns", "asynchronous.on_stale=drop"],
        ["asynchronous.max_staleness=null"],
        ["asynchronous.max_staleness=0", "asynchronous.on_stale=drop"],
        ["algorithm.adv_estimator=grpo_role", "data.games_per_start=8"],
        ["data.games_per_start=8", *(f"{mode}.num_warmup_batches=0.5" for mode in MODES)],
        ["opponents=[{kind: random, share: 0.2}]", "draw_retry.enabled=true"],
        ["num_mini_batches=4", "guard.action=stop"],
        ["actor_rollout_ref.model.lora_rank=8", "+actor_rollout_ref.model.lora.merge=true"],
        ["actor_rollout_ref.actor.use_kl_loss=true"],
        ["fsp.enabled=true", "opponent_engine.devices=own"],
    ],
    ids=str,
)
def test_what_may_be_set_passes(tmp_path: Path, mode: str, overrides: list[str]) -> None:
    check(config(tmp_path, mode, *[override.removeprefix("+") for override in overrides]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [COLOCATE, "determinism=true"],
            r"determinism=true: with trainer\.v1\.trainer_mode=colocate_async it depends on the machine's pace",
        ),
        (
            [COLOCATE, "asynchronous.max_staleness=1", "trainer.v1.colocate_async.num_warmup_batches=1.5"],
            r"asynchronous\.max_staleness=1: games of trainer\.v1\.colocate_async\.num_warmup_batches=1\.5 batches .*; "
            r"take 2 or more",
        ),
        (
            [COLOCATE, "data.games_per_start=8", "trainer.v1.colocate_async.num_warmup_batches=0.53"],
            r"num_warmup_batches=0\.53: of the 67 games .* fewer than data\.games_per_start=8; take 1$",
        ),
        (
            [SEPARATE, "actor_rollout_ref.model.lora_rank=8"],
            r"separate_async: verl sends whole weights .*; set actor_rollout_ref\.model\.lora\.merge=true, or take",
        ),
        (
            [SEPARATE, "ref_update_freq=5", "actor_rollout_ref.actor.use_kl_loss=true"],
            r"ref_update_freq=5: with trainer\.v1\.trainer_mode=separate_async the reference policy is a worker of its",
        ),
        (
            [SEPARATE, "trainer.v1.separate_async.parameter_sync_step=4"],
            r"separate_async\.parameter_sync_step=4: must be 1; .* set num_mini_batches",
        ),
        (
            [SEPARATE, "trainer.v1.separate_async.hybrid_rollout.enable_switch=true"],
            r"hybrid_rollout\.enable_switch=true: must be false",
        ),
        (
            [SEPARATE, "fsp.enabled=true"],
            r"opponent_engine\.devices=shared: with trainer\.v1\.trainer_mode=separate_async the learner's devices are",
        ),
        (["asynchronous.max_staleness=-1"], r"asynchronous\.max_staleness=-1: must be a whole number >= 0 or null"),
        (["asynchronous.on_stale=keep"], r"asynchronous\.on_stale=keep: must be one of wait, drop"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, *overrides))


@pytest.mark.parametrize("module", ["cupy.cuda.nccl", "cupy_backends.cuda.libs.nccl"])
def test_on_gpus_the_way_of_the_weights_must_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """CuPy's own module for NCCL loads without NCCL, and only warns."""
    shared = [SEPARATE, "trainer.n_gpus_per_node=4"]
    check(config(tmp_path, *shared, hardware="gpu"))
    needs = r"checkpoint_engine\.backend=nccl: verl's needs CuPy, and cupy"

    def load(name: str, *args: Any) -> ModuleType:
        if name == module:
            raise ImportError("libnccl.so.2: cannot open shared object file")
        return import_module(name, *args)

    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(ConfigError, match=rf"{needs} cannot be loaded \(libnccl\.so\.2: .*cupy-cuda13x==14\.0\.1"):
        check(config(tmp_path, *shared, hardware="gpu"))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *args: None if name == "cupy" else find_spec(name, *args)
    )
    with pytest.raises(ConfigError, match=f"{needs} is not installed"):
        check(config(tmp_path, *shared, hardware="gpu"))


def test_learner_and_engine_must_both_have_their_gpus(tmp_path: Path) -> None:
    """Ray would wait for more for ever."""
    with pytest.raises(ConfigError, match=r"the engine needs 8 more .* take trainer\.n_gpus_per_node=4 .*_per_node=4$"):
        check(config(tmp_path, SEPARATE, hardware="gpu"))
    fewer = ["trainer.n_gpus_per_node=4", "actor_rollout_ref.rollout.n_gpus_per_node=2"]
    check(config(tmp_path, SEPARATE, *fewer, hardware="gpu"))


def checkpoint(tmp_path: Path, asynchronous: bool) -> None:
    folder = tmp_path / "run" / "checkpoints"
    save(folder, 4, ranks=1)
    made: dict[str, Any] = {"data.train_batch_size": 128, "data.games_per_start": 1}
    state = {**read_state(folder / "global_step_4"), **made, "asynchronous": asynchronous, "in_flight": [[5, 0, None]]}
    write_state(folder / "global_step_4", state)
    (folder / TRACKER).write_text("4")
    if asynchronous:
        assert IN_FLIGHT in missing_parts(folder / "global_step_4", 1)
        (folder / "global_step_4" / IN_FLIGHT).parent.mkdir()
        (folder / "global_step_4" / IN_FLIGHT).write_text("{}")
        assert missing_parts(folder / "global_step_4", 1) == []


def test_games_in_flight_are_not_left_behind_by_another_mode(tmp_path: Path) -> None:
    checkpoint(tmp_path, asynchronous=True)
    check(config(tmp_path, COLOCATE))
    check(config(tmp_path, SEPARATE))
    with pytest.raises(
        ConfigError, match=r"mode=sync: cannot go on from .*, which has 1 games in flight; take colocate"
    ):
        check(config(tmp_path))


def test_games_numbered_by_steps_are_not_numbered_on(tmp_path: Path) -> None:
    checkpoint(tmp_path, asynchronous=False)
    check(config(tmp_path))
    with pytest.raises(ConfigError, match=r"colocate_async: cannot go on from .*, of a run in sync mode.*; take sync"):
        check(config(tmp_path, COLOCATE))
