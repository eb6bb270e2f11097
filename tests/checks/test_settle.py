"""What follows from other settings is set, and what only follows cannot be set."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.checks import ConfigError
from recipe.spiral.checks.command_line import compose
from recipe.spiral.lab.planning.dry_run import differences
from tests.made_configs import config

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
SEPARATE, COLOCATE = "trainer.v1.trainer_mode=separate_async", "trainer.v1.trainer_mode=colocate_async"
LENGTHS = ["data.max_prompt_length=10000", "data.max_response_length=6400"]
EXECUTOR = f"{ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend"
UNIPROC = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
RATIOS = "algorithm.rollout_correction"


@pytest.mark.parametrize(
    ("overrides", "setting", "value"),
    [
        (["seed=3"], "data.run_seed", 3),
        (["games=[Nim]"], "data.games", ["Nim"]),
        (["validation.questions=7"], "data.validation.questions", 7),
        ([f"{ROLLOUT}.n=5"], "data.responses", 5),
        (["data.train_batch_size=64"], f"{ACTOR}.ppo_mini_batch_size", 64),
        ([f"{ACTOR}.grad_clip=0.5"], "critic.optim.clip_grad", 0.5),
        (["data.max_response_length=9"], f"{ACTOR}.loss_scale_factor", 9),
        ([f"{ACTOR}.loss_scale_factor=7"], f"{ACTOR}.loss_scale_factor", 7),
        (["batch_unit=turns"], "data.gen_batch_size", 1),
        ([], "data.gen_batch_size", None),
        (["asynchronous.max_staleness=2"], "trainer.v1.sampler.max_off_policy_threshold", 3),
        (["asynchronous.max_staleness=null"], "trainer.v1.sampler.max_off_policy_threshold", None),
        (["asynchronous.on_stale=drop"], "trainer.v1.sampler.max_off_policy_strategy", "drop"),
        ([], "trainer.v1.sampler.custom_sampler.name", "RestingBuffer"),
        ([COLOCATE], "trainer.v1.sampler.custom_sampler.name", "GameBuffer"),
        ([COLOCATE], "actor_rollout_ref.hybrid_engine", True),
        ([COLOCATE], f"{ROLLOUT}.nnodes", 0),
        ([COLOCATE], f"{ROLLOUT}.checkpoint_engine.backend", "naive"),
        ([COLOCATE], f"{ROLLOUT}.checkpoint_engine.custom_backend_module", None),
        ([SEPARATE], "actor_rollout_ref.hybrid_engine", False),
        ([SEPARATE], f"{ROLLOUT}.nnodes", 1),
        ([SEPARATE, f"{ROLLOUT}.nnodes=2"], f"{ROLLOUT}.nnodes", 2),
        ([SEPARATE], f"{ROLLOUT}.checkpoint_engine.backend", "nccl"),
        ([SEPARATE, "hardware=cpu"], f"{ROLLOUT}.checkpoint_engine.backend", "file"),
        (
            [SEPARATE],
            f"{ROLLOUT}.checkpoint_engine.custom_backend_module",
            "recipe.spiral.workers.engine.receiving",
        ),
        (["hardware=cpu", "trainer.n_gpus_per_node=3"], "ray_kwargs.ray_init.num_gpus", 3),
        (["hardware=cpu", SEPARATE, "trainer.n_gpus_per_node=2"], "ray_kwargs.ray_init.num_gpus", 4),
        (["hardware=cpu", "ray_kwargs.ray_init.num_gpus=6"], "ray_kwargs.ray_init.num_gpus", 6),
        (["hardware=cpu", "trainer.n_gpus_per_node=2", f"{ROLLOUT}.tensor_model_parallel_size=2"], EXECUTOR, "mp"),
        (["hardware=cpu", "trainer.n_gpus_per_node=2"], EXECUTOR, UNIPROC),
        (["determinism=true"], f"{ROLLOUT}.enable_prefix_caching", False),
        (["determinism=true"], f"{ROLLOUT}.full_determinism", True),
        (["determinism=true", "hardware=cpu"], f"{ROLLOUT}.full_determinism", False),
        (["determinism=true"], "critic.fsdp.full_determinism", True),
        ([], f"{ROLLOUT}.enable_prefix_caching", True),
        ([], f"{RATIOS}.rollout_is", None),
        ([COLOCATE], f"{RATIOS}.rollout_is", "token"),
        ([COLOCATE, f"{RATIOS}.rollout_is=null"], f"{RATIOS}.rollout_is", None),
        ([COLOCATE, f"{RATIOS}.bypass_mode=true"], f"{RATIOS}.rollout_is", None),
        (LENGTHS, f"{ROLLOUT}.max_model_len", 16400),
        ([*LENGTHS, f"{ROLLOUT}.max_model_len=20000"], f"{ROLLOUT}.max_model_len", 20000),
        (LENGTHS, f"{ACTOR}.ppo_max_token_len_per_gpu", 16384),
        ([*LENGTHS, "algorithm.adv_estimator=dpo"], f"{ACTOR}.ppo_max_token_len_per_gpu", 32800),
        ([*LENGTHS, f"{ACTOR}.ppo_max_token_len_per_gpu=99"], f"{ACTOR}.ppo_max_token_len_per_gpu", 99),
    ],
    ids=str,
)
def test_what_follows(tmp_path: Path, overrides: list[str], setting: str, value: Any) -> None:
    hardware = "cpu" if "hardware=cpu" in overrides else "gpu"
    given = [override for override in overrides if override != "hardware=cpu"]
    assert OmegaConf.select(config(tmp_path, *given, hardware=hardware, model="hf"), setting) == value


@pytest.mark.parametrize(
    ("override", "instead"),
    [
        ("data.gen_batch_size=16", "it follows from batch_unit; "),
        ("actor_rollout_ref.hybrid_engine=false", "it follows from trainer.v1.trainer_mode"),
        (f"{ACTOR}.ppo_mini_batch_size=64", "the number of turns .*; set num_mini_batches, "),
        (f"{ACTOR}.optim.clip_grad=2", f"set {ACTOR}.grad_clip instead"),
        ("critic.optim.clip_grad=2", "set critic.grad_clip instead"),
        ("trainer.v1.sampler.max_off_policy_threshold=3", "set asynchronous.max_staleness instead"),
        ("trainer.v1.sampler.max_off_policy_strategy=wait", "set asynchronous.on_stale instead"),
        ("trainer.v1.sampler.custom_sampler.name=Mine", "SPIRAL's own looks for finished games"),
    ],
)
def test_what_only_follows_cannot_be_set(tmp_path: Path, override: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{override}: cannot be set; {instead}"):
        config(tmp_path, override)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("data.val_batch_size=64", "must be null; a validation is one batch"),
        ("data.train_max_samples=64", "must be -1; it is not read; set trainer.total_training_steps"),
        ("data.val_max_samples=64", "must be -1; it is not read; set validation.questions"),
        ("data.filter_overlong_prompts=true", "must be false; it is not read; a question with a longer prompt"),
        ("data.truncation=left", "must be error; it is not read; prompts are never cut"),
        ("data.prompt_key=text", "must be prompt; it is not read; name the column so"),
        ("critic.ppo_mini_batch_size=64", "must be .*; the number of turns .* varies; set num_mini_batches instead"),
        ("reward_model.enable=true", "must be false; games bring their own rewards"),
        ("algorithm.rollout_correction.loss_type=reinforce", "must be ppo_clip; .* take loss=clipped or"),
        (f"{ROLLOUT}.agent.agent_loop_config_path=mine.yaml", "must be null; the start writes it; agent loops"),
    ],
)
def test_of_some_settings_one_value_works(tmp_path: Path, override: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(override)}: {why}"):
        config(tmp_path, override)


def test_what_verls_scripts_write_out_passes(tmp_path: Path) -> None:
    config(tmp_path, "data.truncation=error", "reward_model.enable=false", "data.train_max_samples=-1")


def test_only_one_mode_has_machines_for_the_engine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.nnodes=1: the engine has machines .*separate_async; take 0$"):
        config(tmp_path, f"{ROLLOUT}.nnodes=1")


@pytest.mark.parametrize("wrong", ["data.max_prompt_length=long", "asynchronous.max_staleness=old", "games=3"])
def test_a_wrong_type_is_left_to_the_checks(tmp_path: Path, wrong: str) -> None:
    config(tmp_path, wrong, f"{ROLLOUT}.max_model_len=null", SEPARATE)


def listed(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> dict[str, str]:
    monkeypatch.setattr(sys, "argv", ["spiral", *overrides])
    [(composed, node)] = compose("spiral_trainer")
    groups = ("hardware", "model", "task", "loss")
    return dict(differences(composed, {group: node.runtime.choices[group] for group in groups}))


def test_a_dry_run_lists_what_was_set_and_not_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [SEPARATE, "determinism=true", "games=[Nim]", "batch_unit=turns", "data.max_response_length=8"]
    found = listed(monkeypatch, "hardware=cpu", "model=hf", *given, f"{RATIOS}.rollout_is=sequence")
    assert found.keys() == {override.split("=")[0] for override in given} | {f"{RATIOS}.rollout_is"}
    assert listed(monkeypatch, "hardware=cpu", "model=hf", f"{ROLLOUT}.max_model_len=99") == {
        f"{ROLLOUT}.max_model_len": "99"
    }


def test_the_datasets_mirrors_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, meant in (("games", "games"), ("validation", "validation"), ("batch_unit", "batch_unit")):
        for plus in ("", "+"):
            with pytest.raises(ConfigError, match=rf"data\.{name}=1: there is no such setting; did you mean `{meant}`"):
                listed(monkeypatch, f"{plus}data.{name}=1")
