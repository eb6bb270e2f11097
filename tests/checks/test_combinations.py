"""What would train wrongly without a word is refused, by its setting; its neighbour passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.checks import ConfigError, check
from tests.made_configs import config

ACTOR, REF, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "model"))
KL = f"{ACTOR}.use_kl_loss=true"
ATTENTION = f"{MODEL}.override_config.attn_implementation"
SEPARATE, COLOCATE = (f"trainer.v1.trainer_mode={mode}_async" for mode in ("separate", "colocate"))
MEAN = f"{KL} ref_update_freq=1 ref_update_rate=0.1"


@pytest.mark.parametrize(
    ("wrong", "right", "setting"),
    [
        ("algorithm.adv_estimator=grpo", "algorithm.adv_estimator=gae", "algorithm.adv_estimator"),
        (
            "algorithm.adv_estimator=grpo_role",
            "algorithm.adv_estimator=grpo_role data.games_per_start=8",
            "data.games_per_start",
        ),
        ("actor_rollout_ref.rollout.n=8", "", r"actor_rollout_ref\.rollout\.n"),
        ("ref_update_freq=1", f"ref_update_freq=1 {KL}", "ref_update_freq"),
        (f"{MEAN} {REF}.fsdp_config.model_dtype=bf16", MEAN, "model_dtype"),
        (f"{MEAN} {SEPARATE}", f"{MEAN} {COLOCATE}", "ref_update_freq"),
        (
            f"{SEPARATE} {MODEL}.lora_rank=8",
            f"{SEPARATE} {MODEL}.lora_rank=8 {MODEL}.lora.merge=true",
            "trainer.v1.trainer_mode",
        ),
        (f"{MODEL}.use_remove_padding=false", f"{MODEL}.use_remove_padding=false {ATTENTION}=sdpa", ATTENTION),
        (f"{ACTOR}.ulysses_sequence_parallel_size=2", "", "ulysses_sequence_parallel_size"),
        ("data.max_response_length=600", "data.max_response_length=32", "max_model_len"),
        (
            f"{COLOCATE} trainer.v1.colocate_async.num_warmup_batches=3 asynchronous.max_staleness=2",
            f"{COLOCATE} trainer.v1.colocate_async.num_warmup_batches=3 asynchronous.max_staleness=3",
            "asynchronous.max_staleness",
        ),
        (f"{ACTOR}.checkpoint.save_contents=[model]", "", "save_contents"),
    ],
    ids=lambda text: text[-60:],
)
def test_a_refusal(tmp_path: Path, wrong: str, right: str, setting: str) -> None:
    check(config(tmp_path, *right.split()))
    with pytest.raises(ConfigError, match=rf"^\S*{setting}"):
        check(config(tmp_path, *wrong.split()))


def test_a_folder_that_vllm_takes_for_a_pattern_has_no_pool(tmp_path: Path) -> None:
    check(config(tmp_path / "[a]"))
    with pytest.raises(ConfigError, match=r"^run_dir="):
        check(config(tmp_path / "[a]", "fsp.enabled=true"))


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("model", ["tiny", "smollm2_135m", "hf"])
def test_what_is_shipped_passes(tmp_path: Path, hardware: str, model: str) -> None:
    check(config(tmp_path, f"{MODEL}.path=some/model", hardware=hardware, model=model))
