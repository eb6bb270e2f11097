"""What would train wrongly without a word is refused, by its setting; its neighbour passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.checks import check
from recipe.spiral.opponents.model_files import form_of
from tests.made_configs import config, without_weights

ACTOR, REF, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "model"))
KL = f"{ACTOR}.use_kl_loss=true"
ATTENTION = f"{MODEL}.override_config.attn_implementation"
SEPARATE, COLOCATE = (f"trainer.v1.trainer_mode={mode}_async" for mode in ("separate", "colocate"))
POOL = "fsp.enabled=true"
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
        (
            "algorithm.rollout_correction.bypass_mode=true algorithm.rollout_correction.rollout_is=token",
            "algorithm.rollout_correction.bypass_mode=false algorithm.rollout_correction.rollout_is=token",
            "algorithm.rollout_correction.rollout_is",
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
        (f"{ACTOR}.ppo_mini_batch_size=8", "", "ppo_mini_batch_size"),
        ("trainer.critic_warmup=2", "trainer.critic_warmup=2 algorithm.adv_estimator=gae", "trainer.critic_warmup"),
        (f"{POOL} fsp.update_interval=null", f"{POOL} fsp.initial=[base]", "fsp.update_interval"),
    ],
    ids=lambda text: text[-60:],
)
def test_a_refusal(tmp_path: Path, wrong: str, right: str, setting: str) -> None:
    check(config(tmp_path, *right.split()))
    with pytest.raises(ValueError, match=rf"^\S*{setting}"):
        check(config(tmp_path, *wrong.split()))


def test_random_moves_are_nobodys_answers(tmp_path: Path) -> None:
    games = "games=[{id: TicTacToe, random_opening: 4}]"
    check(config(tmp_path, games))
    with pytest.raises(ValueError, match=r"random_opening=4.*prompt\.style=dialogue"):
        check(config(tmp_path, games, "prompt.style=dialogue"))
    with pytest.raises(ValueError, match=r"random_opening=4.*rules\.turn_cap=4"):
        check(config(tmp_path, games, "rules.turn_cap=4"))


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("model", ["tiny", "smollm2_135m", "hf"])
def test_what_is_shipped_passes(tmp_path: Path, hardware: str, model: str) -> None:
    check(config(tmp_path, f"{MODEL}.path=some/model", hardware=hardware, model=model))


# -- opponents ---------------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match=f"^{setting}"):
        check(config(tmp_path, *overrides))


def test_members_are_of_the_policys_kind_and_whole(tmp_path: Path) -> None:
    (folder := tmp_path / "exported").mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    without_weights(folder / "model.safetensors")
    assert form_of(folder) == "hf"
    given = [POOL, f"fsp.initial=[{folder}]", f"opponents=[{{kind: model, name: old, share: 0.1, path: {folder}}}]"]
    check(config(tmp_path, *given))
    with pytest.raises(ValueError, match=r"^opponents: old: path"):
        check(config(tmp_path, *given, "actor_rollout_ref.model.lora_rank=8"))
    with pytest.raises(ValueError, match=r"^fsp\.initial"):
        check(config(tmp_path, *given[:2], "actor_rollout_ref.model.lora_rank=8"))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^opponents: old: path"):
        check(config(tmp_path, *given))


def test_on_a_cpu_ray_counts_the_devices_of_opponents_engines(tmp_path: Path) -> None:
    """Of two members in a step twice, as games go on over several steps."""
    own = [POOL, "fsp.members_per_step=2", "opponent_engine.devices=own", "trainer.v1.trainer_mode=separate_async"]
    assert config(tmp_path, *own).ray_kwargs.ray_init.num_gpus == 1 + 1 + 4
    assert config(tmp_path, POOL).ray_kwargs.ray_init.num_gpus == 1
