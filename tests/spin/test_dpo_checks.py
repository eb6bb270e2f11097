"""What ``loss=dpo`` needs is checked before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.spiral.checks import ConfigError, check
from tests import made_configs
from tests.made_configs import with_vllm_and_gpus


def config(tmp_path: Path, *overrides: str, model: str = "tiny", hardware: str = "cpu") -> DictConfig:
    several = ("data.games_per_start=8", *overrides)
    return made_configs.config(tmp_path, *several, hardware=hardware, model=model, groups=["loss=dpo"])


def test_the_loss_sets_what_belongs_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)
    made = config(tmp_path, "ref_update_freq=4")
    check(made)
    actor = made.actor_rollout_ref.actor
    assert (made.algorithm.adv_estimator, actor.policy_loss.loss_mode) == ("dpo", "dpo")
    assert (actor.use_kl_loss, actor.kl_loss_coef, made.ref_update_freq) == (True, 0.0, 4)
    check(config(tmp_path, "actor_rollout_ref.actor.kl_loss_coef=0.1", "algorithm.dpo_log_prob=mean"))
    check(config(tmp_path, "critic.enable=false", "algorithm.dpo_label_smoothing=0.1"))


def test_a_micro_batch_has_room_for_the_longest_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, with and without flash-attn."""
    with_vllm_and_gpus(monkeypatch)
    real = ["actor_rollout_ref.model.path=some/model"]
    for attention in ("flash_attention_2", "sdpa"):
        long = [
            f"actor_rollout_ref.model.override_config.attn_implementation={attention}",
            "data.max_response_length=9000",
        ]
        made = config(tmp_path, *real, *long, model="hf", hardware="gpu")
        assert made.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 2 * (2048 + 9000)
    assert config(tmp_path).actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 32768


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.adv_estimator=rae", r"adv_estimator=rae with .*loss_mode=dpo: dpo is both or none; take loss=dpo"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=vanilla", r"dpo is both or none; take loss=dpo"),
        ("actor_rollout_ref.actor.use_kl_loss=false", r"use_kl_loss=false: DPO compares with a reference"),
        ("algorithm.use_kl_in_reward=true", r"use_kl_in_reward=true: must be false with loss=dpo; .*kl_loss_coef"),
        ("critic.enable=true", r"critic\.enable=true: must be null or false with loss=dpo"),
        (
            "data.games_per_start=1",
            r"data\.games_per_start=1: loss=dpo compares games from the same start, or branches; take 8",
        ),
        ("algorithm.dpo_beta=0", r"algorithm\.dpo_beta=0: must be a number > 0"),
        ("algorithm.dpo_loss_type=kto", r"algorithm\.dpo_loss_type=kto: must be one of sigmoid, ipo, hinge"),
        ("algorithm.dpo_label_smoothing=0.5", r"dpo_label_smoothing=0\.5: must be a number >= 0 and < 0\.5"),
        (
            "algorithm={dpo_loss_type: ipo, dpo_label_smoothing: 0.1}",
            r"dpo_label_smoothing=0\.1: does nothing with algorithm\.dpo_loss_type=ipo; take 0, or dpo_loss_type=sigm",
        ),
        ("algorithm.dpo_log_prob=max", r"algorithm\.dpo_log_prob=max: must be one of sum, mean or null"),
        (
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=900",
            r"ppo_max_token_len_per_gpu=900: both responses of a pair .*= 992 tokens; raise it",
        ),
    ],
)
def test_what_does_not_go_with_pairs_is_refused(
    tmp_path: Path, override: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_vllm_and_gpus(monkeypatch)
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, override))


def test_a_batch_of_turns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)
    made = config(tmp_path)
    made.merge_with(OmegaConf.from_dotlist(["batch_unit=turns", "data.games_per_start=1"]))
    with pytest.raises(ConfigError, match=r"batch_unit=turns: must be games with loss=dpo"):
        check(made)
