"""Configs: what Hydra refuses, also in a preset; what follows from a setting; that the packaged presets and the user's
example pass the checks, and that the paper's has the paper's settings.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.spiral.checks import check
from recipe.spiral.checks.prompts_fit import check_model
from recipe.spiral.checks.settle import settle
from tests.made_configs import CONFIG, SHIPPED, config, without_weights

ROLLOUT = "actor_rollout_ref.rollout"
#: The user's folder of this project.
USERS = Path(__file__).resolve().parents[1] / "config"
SPIN = CONFIG.parent / "spin" / "config"
PRESETS = [file.stem for folder in (CONFIG, SPIN, USERS) for file in sorted((folder / "experiment").glob("*.yaml"))]


def composed(*overrides: str, folder: Path = USERS) -> DictConfig:
    """Also with the presets of a folder."""
    folders = [*OmegaConf.load(CONFIG / "spiral_trainer.yaml").hydra.searchpath, f"file://{folder}"]
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=[f"hydra.searchpath=[{','.join(folders)}]", *overrides])
    settle(config)
    return config


@pytest.mark.parametrize(
    "override",
    ["fsp.siez=3", "fsp.size=abc", "fsp.sample=best", "games=Nim", "trainer.test_freqq=5", "seed=null", "typo=1"],
)
def test_a_mistake_on_a_command_line(override: str) -> None:
    with pytest.raises(HydraException, match=override.partition("=")[0]):
        composed(override)


@pytest.mark.parametrize(
    "text",
    [
        "fsp:\n  siez: 3",
        "fps:\n  enabled: true",
        "data:\n  batch: 3",
        "rules:\n  truncated: no",
        "guard:\n  acton: stop",
    ],
)
def test_a_mistake_in_a_preset(tmp_path: Path, text: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(HydraException, match="mine"):
        composed("+experiment=mine", folder=tmp_path)


@pytest.mark.parametrize(
    "override", ["fsp.ratio=1.5", "algorithm.rae.decay=-1", "ref_update_rate=0", "guard.invalid=2"]
)
def test_a_number_out_of_its_range(tmp_path: Path, override: str) -> None:
    with pytest.raises(ValueError, match=f"^{override.partition('=')[0]}="):
        check(config(tmp_path, override))


@pytest.mark.parametrize(
    ("overrides", "setting", "value"),
    [
        ("", f"{ROLLOUT}.max_model_len", 512),
        ("model=hf", f"{ROLLOUT}.max_model_len", 6144),
        ("", "algorithm.rollout_correction.rollout_is", None),
        ("trainer.v1.trainer_mode=colocate_async", "algorithm.rollout_correction.rollout_is", "token"),
        ("trainer.v1.trainer_mode=separate_async", f"{ROLLOUT}.checkpoint_engine.backend", "file"),
        ("trainer.v1.trainer_mode=separate_async", "ray_kwargs.ray_init.num_gpus", 2),
        ("asynchronous.max_staleness=2", "trainer.v1.sampler.max_off_policy_threshold", 3),
        ("batch_unit=turns", "data.gen_batch_size", 1),
        ("seed=7", "data.run_seed", 7),
        (f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend", "mp"),
        ("trainer.project_name=42", "trainer.project_name", "42"),
    ],
)
def test_what_follows(tmp_path: Path, overrides: str, setting: str, value: Any) -> None:
    given = overrides.split()
    model = "hf" if "model=hf" in given else "tiny"
    made = config(tmp_path, *(each for each in given if each != "model=hf"), model=model)
    assert OmegaConf.select(made, setting) == value


def test_modules_of_the_users_come_after_ours(tmp_path: Path) -> None:
    libraries = config(tmp_path, "actor_rollout_ref.model.external_lib=json").actor_rollout_ref.model.external_lib
    assert libraries == ["recipe.spiral.workers.engine", "json"]


def files_of(preset: str, folder: Path) -> list[str]:
    """Where a preset trains on questions: a file of them, in the form of verl's GSM8K."""
    if not preset.startswith("spin"):
        return []
    row = {"data_source": "openai/gsm8k", "reward_model": {"ground_truth": "4"}}
    file = folder / "questions.jsonl"
    file.write_text(json.dumps({**row, "prompt": [{"role": "user", "content": "What is 2 + 2?"}]}))
    return [f"data.train_files={file}", f"data.val_files=[{file}]"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset(preset: str, tmp_path: Path) -> None:
    config = composed(f"+experiment={preset}", f"run_dir={tmp_path}", *files_of(preset, tmp_path))
    if preset in ("smollm2_cpu", "smollm2_gpu", "spin_arithmetic", "tictactoe"):  # their models are made where they run
        with open_dict(config):
            config.actor_rollout_ref.model.path = str(SHIPPED)
    check(config)
    pool = preset in ("pool", "paper_pool")
    refreshed = preset in ("equilibrium", "smollm2_gpu", "spin", "spin_arithmetic", "tictactoe")
    assert (config.fsp.enabled, config.ref_update_freq is not None) == (pool, refreshed)
    # a change of the reference after the last step would train nothing
    assert config.ref_update_freq is None or config.ref_update_freq < config.trainer.total_training_steps


#: What of Qwen3-4B-Base's config decides what it reads.
QWEN3_4B = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}
#: With every role that a template uses, and all of what an assistant said.
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("preset", ["paper", "paper_lora"])
def test_a_preset_of_a_real_model_passes_every_check_of_a_start(preset: str, tmp_path: Path) -> None:
    """Against a folder with that model's form and the tiny model's tokenizer, which needs more tokens."""
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text(json.dumps(QWEN3_4B))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / file, model / file)
    (model / "chat_template.jinja").write_text(CHAT)
    without_weights(model / "model.safetensors")
    config = composed(f"+experiment={preset}", f"run_dir={tmp_path}", f"actor_rollout_ref.model.path={model}")
    check(config)
    check_model(config)


#: Of SPIRAL's Table 7 and of its authors' code on OAT (docs/deviations.md).
PAPERS: dict[str, Any] = {
    "batch_unit": "turns",
    "data.train_batch_size": 128,
    "num_mini_batches": 1,
    "rules.illegal_rewards": [-1.5, 0.5],
    "rules.truncated": "read",
    "rules.turn_cap": 50,
    "algorithm.adv_estimator": "rae",
    "algorithm.gamma": 1.0,
    "algorithm.filter_zero_advantages": True,
    "algorithm.filter_draws": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.rae.baseline": True,
    "algorithm.rae.decay": 0.95,
    "algorithm.rae.by_opponent": False,
    "algorithm.rollout_correction.bypass_mode": False,
    "draw_retry.enabled": False,
    "fsp.enabled": False,
    "opponents": [],
    "prompt.template": "qwen3",
    "actor_rollout_ref.model.path": "Qwen/Qwen3-4B-Base",
    "actor_rollout_ref.model.lora_rank": 0,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.top_k": -1,
    "actor_rollout_ref.rollout.max_model_len": 12800,
    "data.max_response_length": 4096,
    "actor_rollout_ref.actor.ppo_epochs": 2,
    "actor_rollout_ref.actor.shuffle": True,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.2,
    "actor_rollout_ref.actor.clip_ratio_c": 1e9,
    "actor_rollout_ref.actor.use_kl_loss": False,
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
    "actor_rollout_ref.actor.loss_scale_factor": 4096,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "constant",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
    "actor_rollout_ref.actor.optim.betas": [0.9, 0.95],
    "actor_rollout_ref.actor.optim.weight_decay": 0.0,
    "actor_rollout_ref.actor.optim.clip_grad": 1.0,
    "trainer.total_training_steps": 400,
}


def test_the_papers_preset_has_the_papers_settings() -> None:
    """Each by itself, so that a changed default does not change them unnoticed."""
    config = composed("+experiment=paper")
    plain = OmegaConf.create({"values": [OmegaConf.select(config, key) for key in PAPERS]})
    assert dict(zip(PAPERS, OmegaConf.to_container(plain)["values"], strict=True)) == PAPERS


BYPASS = "algorithm.rollout_correction.bypass_mode"
MIXED = "actor_rollout_ref.actor.fsdp_config.mixed_precision"


FULL = ["actor_rollout_ref.rollout.dtype=float32", f"{MIXED}.param_dtype=fp32"]


@pytest.mark.parametrize(
    ("hardware", "overrides", "followed"),
    [
        ("cpu", [f"{BYPASS}=auto"], True),
        ("cpu", [f"{BYPASS}=auto", "actor_rollout_ref.rollout.dtype=bfloat16"], False),
        ("cpu", [f"{BYPASS}=auto", f"{MIXED}.param_dtype=bf16"], False),
        ("gpu", [f"{BYPASS}=auto"], False),
        ("gpu", [f"{BYPASS}=auto", *FULL], False),  # TF32
        ("gpu", [f"{BYPASS}=true"], True),
        ("gpu", ["loss=dpo"], True),
        ("gpu", ["+experiment=quickstart"], False),
    ],
)
def test_the_engines_log_probabilities_are_trained_with_where_they_are_the_trainers_or_as_the_user_says(
    tmp_path: Path, hardware: str, overrides: list[str], followed: bool
) -> None:
    groups = [override for override in overrides if override in ("loss=dpo", "+experiment=quickstart")]
    others = [override for override in overrides if override not in groups]
    mode = "trainer.v1.trainer_mode=colocate_async"
    correction = config(tmp_path, *others, mode, hardware=hardware, groups=groups).algorithm.rollout_correction
    assert correction.bypass_mode is followed
    assert correction.rollout_is == (None if followed else "token")
