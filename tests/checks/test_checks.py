"""A config that cannot run is refused before anything starts, with the setting, its value and the mend."""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from recipe.spiral import checks
from recipe.spiral.checks import ConfigError, check
from recipe.spiral.checks.verls import check_late, has_critic
from recipe.spiral.storage.checkpoints import STATE_FILE, TRACKER, write_state
from recipe.spiral.storage.metrics_file import MetricsFile
from tests.made_configs import config, with_vllm_and_gpus
from tests.storage.test_checkpoints import save, state


@pytest.fixture(autouse=True)
def has_vllm_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ref_update_freq=0", r"ref_update_freq=0: must be a whole number >= 1 or null"),
        ("ref_update_freq=1.5", r"ref_update_freq=1\.5: must be a whole number"),
        ("ref_update_freq=true", r"ref_update_freq=true: must be a whole number"),
        (
            "actor_rollout_ref.actor.use_kl_loss=false",
            r"ref_update_freq=2: without KL there is no reference policy; set "
            r"actor_rollout_ref\.actor\.use_kl_loss=true or algorithm\.use_kl_in_reward=true, or ref_update_freq=null",
        ),
        (
            "actor_rollout_ref.actor.strategy=fsdp",
            r"actor_rollout_ref\.actor\.strategy=fsdp: ref_update_freq=2 copies the shards of fsdp2; take fsdp2",
        ),
        (
            "actor_rollout_ref.ref.fsdp_config.fsdp_size=2",
            r"ref\.fsdp_config\.fsdp_size=2: must be the actor's, -1, with ref_update_freq=2",
        ),
        *((f"ref_update_rate={rate}", r"must be a number > 0 and <= 1$") for rate in ("0", "1.1", "-1", "null", "a")),
        ("ref_update_freq=null ref_update_rate=0.5", r"ref_update_rate=0\.5: .* never moves; set ref_update_freq=1"),
        *(
            (
                f"ref_update_rate=0.5 actor_rollout_ref.ref.fsdp_config.model_dtype={dtype}",
                rf"ref\.fsdp_config\.model_dtype={dtype}: with ref_update_rate=0\.5 .* rounded away; take fp32",
            )
            for dtype in ("bf16", "null")
        ),
    ],
)
def test_a_reference_that_cannot_be_updated_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, "ref_update_freq=2", "actor_rollout_ref.actor.use_kl_loss=true", *override.split()))


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("more", [[], ["actor_rollout_ref.model.lora_rank=8"]], ids=["full", "lora"])
def test_a_reference_may_be_a_mean(tmp_path: Path, hardware: str, more: list[str]) -> None:
    mean = ["ref_update_freq=1", "ref_update_rate=0.01", "actor_rollout_ref.actor.use_kl_loss=true"]
    path = [] if hardware == "cpu" else ["actor_rollout_ref.model.path=some/model"]
    check(config(tmp_path, *mean, *more, *path, hardware=hardware, model="tiny" if hardware == "cpu" else "hf"))
    if more:  # the mean is of the adapter, which is kept in float32
        check(config(tmp_path, *mean, *more, "actor_rollout_ref.ref.fsdp_config.model_dtype=bf16"))


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("model", ["tiny", "smollm2_135m", "hf"])
def test_the_presets_pass(tmp_path: Path, hardware: str, model: str) -> None:
    more = ["actor_rollout_ref.model.path=some/model"] if model == "hf" else []
    check(config(tmp_path, *more, hardware=hardware, model=model))


@pytest.mark.parametrize(
    "overrides",
    [
        ["games=[TicTacToe, {id: KuhnPoker-v0, weight: 2, template: qwen3}]"],
        ["prompt.style=dialogue", "games=[TicTacToe, {id: KuhnPoker, style: state}]"],
        ["validation.games=[{id: Nim, style: dialogue}]"],
        ["algorithm.adv_estimator=grpo_role", "data.games_per_start=8"],
        ["batch_unit=turns", "num_mini_batches=4", "trainer.n_gpus_per_node=4"],
        ["rules.illegal_rewards=loss", "rules.truncated=mask", "algorithm.filter_draws=true"],
        ["rules.illegal_rewards=[-1,1]", "rules.turn_cap=8", "rules.truncated=read"],
        ["num_mini_batches=4", "trainer.n_gpus_per_node=4"],
        ["algorithm.rae.update=batch", "algorithm.gamma=0.9"],
        ["validation.games=[Nim]"],
        ["validation.opponents=[perfect,random]", "validation.games=[Nim,LiarsDice]"],
        ["ref_update_freq=1", "actor_rollout_ref.actor.use_kl_loss=true"],
        ["ref_update_freq=10", "algorithm.use_kl_in_reward=true", "actor_rollout_ref.model.lora_rank=8"],
        ["trainer.resume_mode=disable", "records.every=0"],
        ["guard.action=stop", "guard.shorter=null", "guard.grad_norm=5"],
        ["actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]"],
        ["critic.enable=true", "trainer.critic_warmup=5"],
        ["actor_rollout_ref.actor.use_dynamic_bsz=false"],
        ["transfer_queue.backend.SimpleStorage.total_storage_size=null"],
        ["algorithm.rollout_correction.rollout_rs=token_k2", "algorithm.rollout_correction.rollout_rs_threshold=1"],
    ],
    ids=str,
)
def test_what_may_be_set_passes(tmp_path: Path, overrides: list[str]) -> None:
    check(config(tmp_path, *overrides))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("games=[TicTacTo]", r"unknown game 'TicTacTo'\. Did you mean 'TicTacToe'\? Known games: "),
        ("games=[]", r"games=\[\]: name at least one game"),
        ("games=[Nim,Nim-v0]", r"games: a game is named twice: Nim, Nim; use weight instead"),
        ("validation.games=[Nimm]", r"unknown game 'Nimm'"),
        ("games=[nobodys.game:Chess]", r"nobodys\.game:Chess: No module named 'nobodys'; install its package"),
        ("games=[json:JSONEncoder]", r"json:JSONEncoder: is no subclass of recipe\.spiral\.games\.Game"),
        (
            "validation.opponents=[random,gpt]",
            r"validation\.opponents: 'gpt': 'gpt' is no kind of fixed player; known kinds: random, perfect",
        ),
        (
            "validation={opponents: [alphabeta], games: [Nim, KuhnPoker]}",
            r"validation\.opponents: 'alphabeta' plays none of the games of validation \(Nim, KuhnPoker\): KuhnPoker: "
            r"the alpha-beta player knows ConnectFour only; leave it out, add a game",
        ),
        (
            "validation.benchmarks=[math501]",
            r"benchmarks: 'math501' is unknown; known are math500",
        ),
        (
            "validation.benchmarks=[{id: math500, path: /nowhere}]",
            r"^validation\.benchmarks: math500: path=/nowhere: there is no such folder\. Put math500\.jsonl ",
        ),
        (
            "validation.benchmarks=[{id: math500, path: /nowhere, max_tokens: 99999}]",
            r"math500 has max_tokens=99999: more than data\.max_response_length=\d+; lower it",
        ),
        ("validation.games_per_role=0", r"validation\.games_per_role=0: must be a whole number >= 1"),
        ("algorithm.adv_estimator=gae2", r"algorithm\.adv_estimator='gae2': unknown here; known: rae, grpo_role"),
        ("algorithm.adv_estimator=grpo", r"algorithm\.adv_estimator=grpo: .* have the mean 0; take grpo_role"),
        ("algorithm.adv_estimator=grpo_role", r"data\.games_per_start=1: .* compares games from the same start"),
        ("data.games_per_start=3", r"data\.games_per_start=3: must be a whole number that divides .*=128"),
        ("algorithm.reward_scale=0", r"algorithm\.reward_scale=0: must be a number > 0"),
        ("rules.illegal_rewards=mild", r"rules\.illegal_rewards='mild': must be one of spiral, loss, or two numbers"),
        ("algorithm.rae.decay=1.5", r"algorithm\.rae\.decay=1\.5: must be a number >= 0 and <= 1"),
        ("algorithm.rae.update=turn", r"algorithm\.rae\.update=turn: must be one of game, batch"),
        (
            "actor_rollout_ref.rollout.temperature=2.5",
            r"actor_rollout_ref\.rollout\.temperature=2\.5: must be a number >= 0\.01 and <= 2",
        ),
        ("actor_rollout_ref.rollout.temperature=0", r"rollout\.temperature=0: must be a number >= 0\.01"),
        (
            "actor_rollout_ref.rollout.val_kwargs.temperature=3",
            r"rollout\.val_kwargs\.temperature=3: must be a number >= 0 and <= 2",
        ),
        (
            "validation.benchmarks=[{id: math500, temperature: 2.1}]",
            r"temperature=2\.1: must be less than or equal to 2",
        ),
        ("algorithm.gamma=0", r"algorithm\.gamma=0: must be a number > 0 and <= 1"),
        (
            "rules.illegal_rewards=[-0.5,0.5]",
            r"rules\.illegal_rewards=\[-0\.5, 0\.5\]: must be finite, the offender's <= -1",
        ),
        ("rules.illegal_rewards=[-1.5]", r"rules\.illegal_rewards=\[-1\.5\]: must be two numbers"),
        ("rules.illegal_rewards=-1.5", r"rules\.illegal_rewards=-1\.5: must be two numbers"),
        ("rules.truncated=draw", r"rules\.truncated='draw': must be 'illegal', 'mask' or 'read'"),
        ("rules.turn_cap=0", r"rules\.turn_cap=0: must be at least 1, or null"),
        ("prompt.template=qwen", r"prompt\.template='qwen': unknown; known templates: .*qwen3"),
        ("prompt.style=dialog", r"^prompt\.style='dialog': unknown; known styles: state, dialogue"),
        ("prompt.style=null", r"^prompt\.style=None: unknown; known styles: state, dialogue"),
        ("games=[{id: Nim, style: chat}]", r"^games: Nim: style='chat': unknown; known styles: state, dialogue"),
        ("validation.games=[{id: Nim, style: chat}]", r"^validation\.games: Nim: style='chat': unknown; known styles"),
        ("batch_unit=rows", r"batch_unit=rows: must be one of games, turns"),
        ("batch_unit=null", r"batch_unit=null: must be one of games, turns"),
        ("data.train_batch_size=0", r"data\.train_batch_size=0: must be a whole number >= 1"),
        ("num_mini_batches=0", r"num_mini_batches=0: must be a whole number >= 1"),
        ("num_mini_batches=true", r"num_mini_batches=true: must be a whole number >= 1"),
        ("num_mini_batches=129", r"num_mini_batches=129: must be from 1 to data\.train_batch_size=128"),
        ("num_mini_batches=1.5", r"num_mini_batches=1\.5: must be a whole number >= 1"),
        ("checkpoint.on_full_disk=wait", r"checkpoint\.on_full_disk=wait: must be one of stop, go_on"),
        ("trainer.max_actor_ckpt_to_keep=0", r"max_actor_ckpt_to_keep=0: must be a whole number >= 1 or null"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", r"async_save=true: must be false"),
        ("guard.action=end", r"guard\.action=end: must be one of warn, stop, off"),
        ("guard.window=0", r"guard\.window=0: must be a whole number >= 1"),
        ("guard.shorter=-1", r"guard\.shorter=-1: must be a number >= 0 and <= 1 or null"),
        ("guard.patience=1.5", r"guard\.patience=1\.5: must be a whole number >= 1"),
        ("guard.invalid=much", r"guard\.invalid=much: must be a number >= 0 and <= 1 or null"),
        ("fsp.start_from=-1", r"fsp\.start_from=-1: must be a whole number >= 0"),
        ("fsp.update_interval=0", r"fsp\.update_interval=0: must be a whole number >= 1 or null"),
        ("fsp.keep=lifo", r"fsp\.keep=lifo: must be one of fifo, spread, best"),
        ("fsp.on_missing=ask", r"fsp\.on_missing=ask: must be one of leave_out, stop"),
        ("algorithm.rae.decay=.nan", r"algorithm\.rae\.decay=nan: must be a number"),
        ("guard.reasoning_chars=-1", r"guard\.reasoning_chars=-1: must be a whole number"),
        ("data.max_prompt_length=0", r"data\.max_prompt_length=0: must be a whole number >= 1"),
        ("data.max_response_length=0", r"data\.max_response_length=0: must be a whole number >= 1"),
        (
            "data.max_response_length=4096",
            r"max_prompt_length=\d+ \+ data\.max_response_length=4096 is more than .*max_model_len=512: lower one",
        ),
        (
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=495",
            r"ppo_max_token_len_per_gpu=495: a turn may have data\.max_prompt_length=480 \+ .*=16 tokens, .*; raise it",
        ),
        ("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=9", r"ref\.log_prob_max_token_len_per_gpu=9: a turn"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=0", r"per_gpu=0: must be a whole number >= 1 or null"),
        ("actor_rollout_ref.model.lora.rank=8", r"lora\.rank=8: must be 0; it is of verl's workers with Megatron; set"),
        ("critic.forward_max_token_len_per_gpu=99", r"=99: must be \$.* does not read it; set that instead"),
        (
            "actor_rollout_ref.rollout.val_kwargs.do_sample=false",
            r"do_sample=false: must be true; .* take temperature=0",
        ),
        ("actor_rollout_ref.rollout.val_kwargs.n=2", r"n=2: must be 1; .* set validation\.games_per_role"),
        ("critic.use_dynamic_bsz=false", r"critic\.use_dynamic_bsz=false: must be true; .* set critic\.ppo_max_token"),
        ("critic.ppo_micro_batch_size_per_gpu=4", r"per_gpu=4: must be null; .* set critic\.ppo_max_token_len_per_gpu"),
        (
            "critic.forward_micro_batch_size_per_gpu=4",
            r"per_gpu=4: must be null; .* set critic\.ppo_max_token_len_per_g",
        ),
        ("critic.ulysses_sequence_parallel_size=2", r"size=2: must be 1; .* set critic\.fsdp\.ulysses_sequence"),
        (
            "actor_rollout_ref.rollout.max_num_batched_tokens=100",
            r"max_num_batched_tokens=100: must be at least actor_rollout_ref\.rollout\.max_model_len=512",
        ),
        ("actor_rollout_ref.rollout.n=8", r"actor_rollout_ref\.rollout\.n=8: must be 2; one session for each player"),
        (
            "actor_rollout_ref.rollout.name=sglang",
            r"actor_rollout_ref\.rollout\.name=sglang: must be vllm",
        ),
        ("data.shuffle=true", r"data\.shuffle=true: must be false"),
        ("trainer.v1.trainer_mode=async", r"trainer\.v1\.trainer_mode=async: must be one of sync, colocate_async, sep"),
        ("trainer.use_v1=false", r"trainer\.use_v1=false: must be true; SPIRAL runs on verl's V1 trainer"),
        ("trainer.total_training_steps=null", r"trainer\.total_training_steps=null: must be a whole number >= 1"),
        ("trainer.total_training_steps=0", r"trainer\.total_training_steps=0: must be a whole number >= 1"),
        ("records.every=-1", r"records\.every=-1: must be a whole number >= 0"),
        ("seed=-1", r"seed=-1: must be a whole number >= 0"),
        ("seed=null", r"seed=null: must be a whole number >= 0"),
        ("algorithm.gamma=low", r"algorithm\.gamma=low: must be a number > 0"),
        ("trainer.n_gpus_per_node=all", r"trainer\.n_gpus_per_node=all: must be a whole number >= 1"),
        (
            "trainer.del_local_ckpt_after_load=true",
            r"del_local_ckpt_after_load=true: must be false; a run that",
        ),
        (
            "actor_rollout_ref.actor.checkpoint.save_contents=[model,extra]",
            r"actor\.checkpoint\.save_contents=\['model', 'extra'\]: lacks optimizer, without which a "
            r"run does not go on .*; take \[model, optimizer, extra\]",
        ),
        (
            "actor_rollout_ref.actor.checkpoint.load_contents=[model]",
            r"actor\.checkpoint\.load_contents=\['model'\]: lacks optimizer, extra",
        ),
        ("critic.checkpoint.save_contents=model", r"critic\.checkpoint\.save_contents=model: lacks optimizer, extra"),
        (
            "critic.checkpoint.load_contents=null",
            r"load_contents=None: lacks model, optimizer, extra",
        ),
        ("critic.checkpoint.async_save=true", r"critic\.checkpoint\.async_save=true: must be false"),
        (
            "trainer.v1.sampler.sync_refill_failed_groups=true",
            r"trainer\.v1\.sampler\.sync_refill_failed_groups=true: must be false; a game that failed",
        ),
        (
            "algorithm.filter_groups.enable=true",
            r"algorithm\.filter_groups\.enable=true: must be false; .* set algorithm\.filter_draws=true",
        ),
        ("algorithm.use_pf_ppo=true", r"algorithm\.use_pf_ppo=true: must be false"),
        ("actor_rollout_ref.actor.use_prefix_grouper=true", r"use_prefix_grouper=true: must be false; the workers"),
        (
            "algorithm.kl_ctrl.type=adaptive",
            r"algorithm\.kl_ctrl\.type=adaptive: must be fixed; .* begin with algorithm\.kl_ctrl\.kl_coef again",
        ),
        ("skip.rollout_tq.enable=true", r"skip\.rollout_tq\.enable=true: must be false; games are played"),
        (
            "actor_rollout_ref.rollout.calculate_log_probs=false",
            r"actor_rollout_ref\.rollout\.calculate_log_probs=false: must be true; the entropy",
        ),
        (
            "algorithm.rollout_correction.rollout_rs=token_k1",
            r"rollout_rs=token_k1: needs a bound; set algorithm\.rollout_correction\.rollout_rs_threshold",
        ),
        (
            "algorithm.rollout_correction={bypass_mode: true, rollout_is: token}",
            r"rollout_is=token: does nothing with .*bypass_mode=true, .*set one of the two, rollout_is=null or bypass",
        ),
        (
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=false",
            r"log_prob_use_dynamic_bsz=false: must be actor_rollout_ref\.actor\.use_dynamic_bsz, true; leave it out",
        ),
        ("trainer.critic_warmup=5", r"trainer\.critic_warmup=5: there is no critic, .*; take 0"),
        ("data.train_files=games.parquet", r"data\.train_files=games\.parquet: cannot be set; .*; set games instead"),
        ("trainer.resume_mode=yes", r"trainer\.resume_mode=.*: must be one of auto, disable, resume_path"),
        ("trainer.resume_mode=resume_path", r"trainer\.resume_from_path=None: there is no such folder"),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_its_mend(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, override))


def test_a_random_opening_is_shorter_than_a_game_may_be(tmp_path: Path) -> None:
    opening = "games=[{id: TicTacToe, random_opening: 6}]"
    check(config(tmp_path, opening, "rules.turn_cap=7"))
    with pytest.raises(ConfigError, match=r"^games: TicTacToe has random_opening=6: must be below rules\.turn_cap=6,"):
        check(config(tmp_path, opening, "rules.turn_cap=6"))


@pytest.mark.parametrize(
    "override",
    [
        "records.tokens=maybe",
        "records.tokens=null",
        "algorithm.filter_draws=maybe",
        "algorithm.filter_zero_advantages=1",
        "algorithm.rae.baseline=yes",
        "determinism=maybe",
        "verbose=loud",
        "trainer.val_before_train=off",
        "actor_rollout_ref.actor.use_kl_loss=maybe",
        "actor_rollout_ref.actor.use_kl_loss=null",
        "actor_rollout_ref.rollout.enforce_eager=0",
    ],
)
def test_what_is_true_or_false_is_one_of_them(tmp_path: Path, override: str) -> None:
    """``OmegaConf.from_dotlist`` would read yes and off as YAML does, and Hydra reads them as text."""
    made = config(tmp_path)
    setting, value = override.split("=")
    OmegaConf.update(made, setting, {"null": None, "1": 1, "0": 0}.get(value, value))
    with pytest.raises(ConfigError, match=rf"^{re.escape(override)}: must be true or false$"):
        check(made)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor_rollout_ref.actor.ppo_epochs=two", "must be a whole number >= 1"),
        ("actor_rollout_ref.actor.optim.lr=true", "must be a number > 0 and <= 1"),
        ("actor_rollout_ref.actor.optim.lr=2", "must be a number > 0 and <= 1"),
        ("actor_rollout_ref.actor.optim.weight_decay=-5", "must be a number >= 0"),
        ("actor_rollout_ref.actor.optim.betas=[0.9, 1.0]", "must be [a number >= 0 and < 1, "),
        ("actor_rollout_ref.actor.clip_ratio=-0.2", "must be a number >= 0"),
        ("actor_rollout_ref.actor.kl_loss_coef=-1", "must be a number >= 0"),
        ("actor_rollout_ref.actor.grad_clip=0", "must be a number > 0"),
        ("actor_rollout_ref.model.lora_rank=-4", "must be a whole number >= 0"),
        ("actor_rollout_ref.rollout.top_p=3", "must be a number > 0 and <= 1"),
        ("actor_rollout_ref.rollout.top_k=0", "must be -1 or a whole number >= 1"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=1.0", "must be a number > 0 and < 1"),
        ("actor_rollout_ref.rollout.max_num_batched_tokens=many", "must be a whole number >= 1"),
        ("actor_rollout_ref.actor.fsdp_config.model_dtype=fp31", "must be one of 16, 32, fp16, fp32, "),
        ("actor_rollout_ref.rollout.dtype=fp32", "must be one of float16, bfloat16, float32"),
        ("actor_rollout_ref.actor.strategy=fspd2", "must be one of fsdp, fsdp2"),
        ("critic.optim.num_cycles=half", "must be a number > 0"),
        ("actor_rollout_ref.rollout.seed=first", "must be a number"),
        ("actor_rollout_ref.rollout.seed=null", "must be a number"),
        ("trainer.logger=null", "must be names of wandb, "),
        ("trainer.device=tpu", "must be one of cpu, cuda"),
        ("guard.invalid=50", "must be a number >= 0 and <= 1 or null"),
        ("actor_rollout_ref.actor.loss_agg_mode=mean", "must be one of token-mean, "),
        ("actor_rollout_ref.actor.optim.lr_scheduler_type=cosin", "must be one of constant, cosine"),
        ("actor_rollout_ref.actor.fsdp_config.fsdp_size=0", "must be -1 or a whole number >= 1"),
        ("algorithm.rollout_correction.rollout_is_threshold=-1", "must be a number > 0 or text"),
        ("actor_rollout_ref.rollout.load_format=nope", "must be one of dummy, auto, safetensors, "),
    ],
)
def test_verls_numbers_are_such(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(config(tmp_path, override))
    assert str(error.value).startswith(f"{override}: {message}")


def test_a_bound_may_be_two_numbers(tmp_path: Path) -> None:
    check(config(tmp_path, "algorithm.rollout_correction.rollout_is_threshold=0.5_2"))


def test_what_verl_would_refuse_late_is_asked_for_before_the_start(tmp_path: Path) -> None:
    check_late(config(tmp_path))
    check_late(config(tmp_path, "algorithm.adv_estimator=dpo", "actor_rollout_ref.actor.policy_loss.loss_mode=dpo"))
    actor = "actor_rollout_ref.actor"
    for override, reason in (
        ("actor_rollout_ref.rollout.mode=sync", "sync"),
        (f"{actor}.optim.optimizer=AdamWW", "AdamWW"),
        (f"{actor}.optim.optimizer_impl=torch.optimm", "torch.optimm"),
        (f"{actor}.optim.override_optimizer_config={{epss: 1}}", "epss"),
        (f"{actor}.policy_loss.loss_mode=vanila", "vanila"),
    ):
        check(made := config(tmp_path, override))
        with pytest.raises((AttributeError, ImportError, TypeError, ValueError, HydraException), match=reason):
            check_late(made)


def test_names_that_verl_would_refuse_late(tmp_path: Path) -> None:
    check(config(tmp_path, "trainer.logger=[console,tracking,file]", "algorithm.kl_penalty=k3+"))
    check(config(tmp_path, "trainer.logger=console"))
    for setting, message in (
        ("actor_rollout_ref.actor.kl_loss_type=low_var", "low_var: must be one of kl, .*, low_var_kl, k3, kl\\+, "),
        ("algorithm.kl_penalty=full", "full: must be one of kl"),
        ("trainer.logger=[console,wandbb]", ".*wandbb.*: must be names of wandb, "),
    ):
        with pytest.raises(ConfigError, match=rf"^{setting.split('=')[0]}={message}"):
            check(config(tmp_path, setting))


@pytest.mark.parametrize("enable", ["null", "true", "false"])
@pytest.mark.parametrize("estimator", ["rae", "gae"])
def test_a_critic_is_where_verl_has_one(tmp_path: Path, enable: str, estimator: str) -> None:
    from verl.trainer.ppo.utils import need_critic

    made = config(tmp_path, f"critic.enable={enable}", f"algorithm.adv_estimator={estimator}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert has_critic(made) == need_critic(made)
    if (enable, estimator) == ("false", "gae"):
        with pytest.raises(ConfigError, match=r"critic\.enable=false: gae needs a critic; take null"):
            check(made)


def test_a_critics_rows_are_packed_whatever_the_policys_are(tmp_path: Path) -> None:
    given = ["actor_rollout_ref.actor.use_dynamic_bsz=false", "critic.ppo_max_token_len_per_gpu=9"]
    check(config(tmp_path, *given))
    with pytest.raises(ConfigError, match=r"critic\.ppo_\w+=9: a turn may have"):
        check(config(tmp_path, *given, "algorithm.adv_estimator=gae"))


def test_a_run_with_a_critic_goes_on_from_one_with_a_critic(tmp_path: Path) -> None:
    folder = save(tmp_path / "run" / "checkpoints", 10)
    check(config(tmp_path))
    told = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]
    for how in ([], told):
        with pytest.raises(
            ConfigError, match=r"^critic\.enable=null with algorithm\.adv_estimator=gae: .* has no critic"
        ):
            check(config(tmp_path, "algorithm.adv_estimator=gae", *how))
    shutil.copytree(folder / "actor", folder / "critic")
    write_state(folder, state(10, critic=True))
    check(config(tmp_path, "algorithm.adv_estimator=gae"))


def test_engines_divide_the_devices(tmp_path: Path) -> None:
    three, two = "trainer.n_gpus_per_node=3", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"
    batch = "data.train_batch_size=129"
    with pytest.raises(ConfigError, match=r"parallel_size=2: an engine takes 2 of the 3 devices, .* take 1,"):
        check(config(tmp_path, three, two, batch, hardware="gpu"))
    check(config(tmp_path, "trainer.n_gpus_per_node=6", two, batch, hardware="gpu"))
    opponents = config(tmp_path, three, batch, "fsp.enabled=true", hardware="gpu")
    opponents.opponent_engine.rollout = {"tensor_model_parallel_size": 2}
    with pytest.raises(ConfigError, match=r"opponent_engine\.rollout\..*=2: .* the 3 devices .* take 1"):
        check(opponents)


def test_a_batch_that_the_ranks_do_not_divide_names_one_that_they_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.train_batch_size=10: .* there are 20, which 8 ranks .*; take 12"):
        check(config(tmp_path, "data.train_batch_size=10", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.games_per_start=8", r"data\.games_per_start=8: batch_unit=turns ends a batch .*; take batch_unit=games"),
        ("data.train_batch_size=31", r"data\.train_batch_size=31: with 2 .* there are 62, which 4 .*; take 32"),
        ("data.train_batch_size=12.5", r"data\.train_batch_size=12\.5: must be a whole number >= 1"),
        ("num_mini_batches=129", r"num_mini_batches=129: must be from 1 to data\.train_batch_size=128"),
    ],
)
def test_what_does_not_go_with_turns(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, "batch_unit=turns", "trainer.n_gpus_per_node=4", override))


@pytest.mark.parametrize(("before", "now"), [("games", "turns"), ("turns", "games")])
def test_a_run_keeps_its_unit(tmp_path: Path, before: str, now: str) -> None:
    folder = save(tmp_path / "run" / "checkpoints", 10)
    write_state(folder, state(10, batch_unit=before))
    check(config(tmp_path, f"batch_unit={before}"))
    for how in ([], ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]):
        with pytest.raises(ConfigError, match=rf"batch_unit={now}: cannot go on from .*take batch_unit={before}, or"):
            check(config(tmp_path, f"batch_unit={now}", *how))
    check(config(tmp_path, f"batch_unit={now}", "trainer.resume_mode=disable"))


def test_a_run_keeps_its_games(tmp_path: Path) -> None:
    folder = save(tmp_path / "run" / "checkpoints", 10)
    write_state(folder, state(10, games="[Nim, {id: KuhnPoker, weight: 2.0}]"))
    check(config(tmp_path, "games=[Nim-v0,{id: KuhnPoker, weight: 2}]"))
    again = [f"trainer.resume_from_path={folder}", "trainer.resume_mode=resume_path"]
    for games in (
        "[Nim]",
        "[{id: KuhnPoker, weight: 2}, Nim]",
        "[Nim, {id: KuhnPoker, weight: 2, template: qwen3}]",
    ):
        for how in ([], again):
            with pytest.raises(ConfigError, match=r"^games=.*cannot go on from .*take games=\[Nim, \{id: Kuhn"):
                check(config(tmp_path, f"games={games}", *how))
        check(config(tmp_path, f"games={games}", *again, f"run_dir={tmp_path / 'other'}"))
        check(config(tmp_path, f"games={games}", "trainer.resume_mode=disable"))


def test_a_game_of_a_package_that_is_missing_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(entries: Any, setting: str = "games") -> None:
        raise ImportError("textarena is not installed: pip install textarena")

    monkeypatch.setattr(checks.combinations, "parse_games", missing)
    with pytest.raises(ConfigError, match=r"pip install textarena"):
        check(config(tmp_path))


def test_a_model_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path is not set: .* or take model=tiny"):
        check(config(tmp_path, "actor_rollout_ref.model.path=null", model="hf"))
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path is not set: "):
        check(config(tmp_path, model="hf"))
    made = config(tmp_path)
    OmegaConf.update(made, "guard.window", "???")
    with pytest.raises(ConfigError, match=r"^guard\.window: not set$"):
        check(made)


def test_vllm_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    composed, find = config(tmp_path), importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else find(name))
    with pytest.raises(ConfigError, match=r"vLLM is not installed: run run_scripts/setup\.sh.*pip install vllm=="):
        check(composed)


def test_a_half_deleted_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    save(checkpoints, 10)
    check(config(tmp_path))
    (checkpoints / "global_step_10" / STATE_FILE).unlink()
    with pytest.raises(
        ConfigError,
        match=r"global_step_10 is not whole .*missing or cut short: spiral\.json.*trainer\.resume_mode=disable",
    ):
        check(config(tmp_path))
    check(config(tmp_path, "trainer.resume_mode=disable"))


@pytest.mark.parametrize("fork", [False, True])
def test_no_run_begins_anew_beside_a_checkpoint_that_nothing_names(tmp_path: Path, fork: bool) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    save(checkpoints, 10)
    (checkpoints / TRACKER).unlink()
    told = (
        ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={save(tmp_path / 'other', 4)}"] if fork else []
    )
    with pytest.raises(ConfigError, match=r"^.*latest_checkpointed_iteration\.txt: names no checkpoint.*write 10 into"):
        check(config(tmp_path, *told))
    check(config(tmp_path, "trainer.resume_mode=disable"))


def test_a_start_goes_back_only_where_it_is_told_to(tmp_path: Path) -> None:
    older, newer = (save(tmp_path / "run" / "checkpoints", step) for step in (10, 20))
    (older.parent / TRACKER).write_text("10")
    check(config(tmp_path))
    MetricsFile(tmp_path / "run").log({"a": 1}, 20)
    with pytest.raises(ConfigError, match=r"names step 10, and global_step_20 beside it is whole"):
        check(config(tmp_path))
    for folder in (older, newer):
        check(config(tmp_path, "trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"))


def test_a_checkpoint_can_be_named(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]
    check(config(tmp_path, *resume))
    with pytest.raises(
        ConfigError, match=r"trainer\.n_gpus_per_node x trainer\.nnodes=2: cannot go on from .*, .* by 1 rank"
    ):
        check(config(tmp_path, *resume, "trainer.n_gpus_per_node=2"))
    with pytest.raises(ConfigError, match=r"must be a checkpoint's folder, global_step_<n>"):
        check(config(tmp_path, resume[0], f"trainer.resume_from_path={folder / 'actor'}"))


def test_a_reference_of_before_is_not_dropped_without_a_word(tmp_path: Path) -> None:
    folder = save(tmp_path / "run" / "checkpoints", 10)
    shutil.copytree(folder / "actor", folder / "ref")
    compared = "actor_rollout_ref.actor.use_kl_loss=true"
    for how in ([], ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]):
        check(config(tmp_path, *how))
        check(config(tmp_path, *how, compared, "ref_update_freq=1"))
        with pytest.raises(
            ConfigError, match=r"ref_update_freq=null: .*/ref holds a later one; .* set ref_update"
        ) as e:
            check(config(tmp_path, *how, compared))
        kept = re.findall(r"ref_update_freq=\d+", str(e.value))
        check(config(tmp_path, *how, compared, *kept))
    shutil.rmtree(folder / "ref")
    check(config(tmp_path, compared))


@pytest.mark.parametrize("change", ["seed=1", "data.train_batch_size=64", "data.games_per_start=4"])
def test_a_run_keeps_what_its_keys_follow_from(tmp_path: Path, change: str) -> None:
    """Otherwise games of an earlier step would be played again, or counted to another one."""
    folder = save(tmp_path / "run" / "checkpoints", 10)
    write_state(folder, state(10) | {"data.train_batch_size": 128, "data.games_per_start": 1})
    (folder.parent / TRACKER).write_text("10")
    check(config(tmp_path))
    with pytest.raises(ConfigError, match=rf"{change}: cannot go on from .*global_step_10, which was trained with \d+"):
        check(config(tmp_path, change))


def test_a_gpu_run_needs_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a cluster that may have them."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"hardware=gpu: torch .* finds no GPU here; take hardware=cpu"):
        check(config(tmp_path, hardware="gpu"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"trainer\.n_gpus_per_node=8: this machine has 2"):
        check(config(tmp_path, hardware="gpu"))
    with listening(b"\0\0\0\4\0\0\0\0\0") as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        check(config(tmp_path, hardware="gpu"))


def test_several_machines_need_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"trainer\.nnodes=2: several machines need a Ray cluster"):
        check(config(tmp_path, "trainer.nnodes=2"))


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A server, which answers one hello so; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            with suppress(OSError), server.accept()[0] as asked:
                asked.recv(1000)
                asked.sendall(answer)

        threading.Thread(target=once, daemon=True).start()
        yield "127.0.0.1:{1}".format(*server.getsockname())


def test_a_cluster_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(b"HTTP/1.1 400 Bad Request") as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=r"no Ray cluster answers there .what listens there is not Ray's"):
            check(config(tmp_path))
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS={address}: no Ray cluster answers there .*or unset it"):
        check(config(tmp_path))
    for address in ("auto", "nonsense", "127.0.0.1:port", "ray://127.0.0.1:10001"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=rf"RAY_ADDRESS={address}: must be host:port"):
            check(config(tmp_path))


def test_the_engine_stays_ours(tmp_path: Path) -> None:
    ours, setting = "recipe.spiral.workers.engine", "actor_rollout_ref.model.external_lib"
    for given, named in (("null", ours), ("json", [ours, "json"]), (f"[{ours},json]", [ours, "json"])):
        assert config(tmp_path, f"{setting}={given}").actor_rollout_ref.model.external_lib == named


@pytest.mark.parametrize("modules", ["nope", "[json, nope.mine]", ".nope", "5"])
def test_a_module_of_the_users_that_is_not_there_is_named(tmp_path: Path, modules: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.external_lib=(\.?nope|nope\.mine|5): there is no such module"):
        config(tmp_path, f"actor_rollout_ref.model.external_lib={modules}")
