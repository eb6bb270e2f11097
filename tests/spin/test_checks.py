"""What ``loss=dpo`` and ``task=questions`` need is checked before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig

from recipe.spiral.checks import check as check_core
from recipe.spiral.spin.extension import Extension
from tests import made_configs


def check(config: DictConfig) -> None:
    check_core(config)
    Extension().check(config)


def dpo(folder: Path, *overrides: str) -> DictConfig:
    return made_configs.config(folder, "data.games_per_start=8", *overrides, groups=["loss=dpo"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(5)]
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def questions(folder: Path, *overrides: str, loss: str = "dpo") -> DictConfig:
    files = [f"data.train_files={folder}/train.jsonl", f"data.val_files={folder}/test.jsonl"]
    return made_configs.config(folder, *files, *overrides, groups=["task=questions", f"loss={loss}"])


def test_the_loss_sets_what_belongs_to_it(tmp_path: Path) -> None:
    made = dpo(tmp_path, "ref_update_freq=4")
    check(made)
    actor = made.actor_rollout_ref.actor
    assert (made.algorithm.adv_estimator, actor.policy_loss.loss_mode) == ("dpo", "dpo")
    assert (actor.use_kl_loss, actor.kl_loss_coef, made.ref_update_freq) == (True, 0.0, 4)


def test_what_goes_with_questions(folder: Path) -> None:
    check(questions(folder, "actor_rollout_ref.rollout.n=2", "data.train_batch_size=3"))
    check(questions(folder, "questions.grader=verl.utils.reward_score:default_compute_score"))
    check(questions(folder, "algorithm.adv_estimator=grpo_role", loss="clipped"))


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("algorithm.adv_estimator=rae", r"adv_estimator=rae"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=vanilla", r"loss_mode=vanilla"),
        ("actor_rollout_ref.actor.use_kl_loss=false", r"use_kl_loss=false"),
        ("algorithm.use_kl_in_reward=true", r"use_kl_in_reward=true"),
        ("data.games_per_start=1", r"data\.games_per_start=1"),
        ("algorithm.dpo_loss_type=kto", r"algorithm\.dpo_loss_type=kto"),
        ("algorithm.dpo_label_smoothing=0.5", r"dpo_label_smoothing=0\.5"),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=900", r"ppo_max_token_len_per_gpu=900"),
    ],
)
def test_what_does_not_go_with_pairs_is_refused(tmp_path: Path, override: str, setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        check(dpo(tmp_path, override))


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("actor_rollout_ref.rollout.n=1", r"rollout\.n=1"),
        ("data.train_files=nowhere.jsonl", r"data\.train_files=nowhere\.jsonl"),
        ("data.val_files=${data.train_files}", r"data\.val_files"),
        ("fsp.enabled=true", r"fsp\.enabled=true"),
        ("draw_retry.enabled=true", r"draw_retry\.enabled=true"),
        ("questions.grader=mine", r"questions\.grader=mine"),
        ("questions.grader=nobodys:function", r"questions\.grader=nobodys:function: .*ModuleNotFoundError"),
    ],
)
def test_what_does_not_go_with_questions_is_refused(folder: Path, override: str, setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        check(questions(folder, override))
