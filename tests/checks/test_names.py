"""Which keys are settings, and what is said of one that is not."""

from __future__ import annotations

import pickle
from functools import cache

import pytest
from hydra.conf import HydraConf
from omegaconf import OmegaConf

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.checks.names import CONFIG, Names, walk
from recipe.spiral.checks.settle import settle
from recipe.spiral.opponents.model_files import whole_path
from tests.made_configs import config, unsettled, with_vllm_and_gpus


@cache
def names(program: str = "spiral_trainer") -> Names:
    return Names(program)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+nonsense=1", r"^\+nonsense=1: there is no such setting; --cfg job prints all settings$"),
        ("+model_name=x", r"^\+model_name=x: .*; did you mean `model`\?$"),
        ("+fsp.sze=3", r"^\+fsp\.sze=3: there is no such setting; did you mean `fsp\.size`\?$"),
        ("+fspp.size=3", r"`fsp\.size`"),
        ("++trainer.foo=1", r"^\+\+trainer\.foo=1: there is no such setting; "),
        ("+actor_rollout_ref.actor.lrr=1", r"did you mean `actor_rollout_ref\.actor\.optim\.lr`\?$"),
        ("+actor_rollout_ref.actor.optim.betass=1", r"did you mean `actor_rollout_ref\.actor\.optim\.betas`\?$"),
        ("+opponent_engine.rollout.max_num_seq=1", r"did you mean `opponent_engine\.rollout\.max_num_seqs`\?$"),
        ("+trainer_mode=sync", r"did you mean `trainer\.v1\.trainer_mode`\?$"),
        ("+steps=10", r"^\+steps=10: .*; did you mean `trainer\.total_training_steps=10`\?$"),
        ("+trainer.steps=10", r"did you mean `trainer\.total_training_steps=10`\?$"),
        ("+model.path=X", r"did you mean `model=hf actor_rollout_ref\.model\.path=X`\?$"),
        ("+batch_size=8", r"did you mean `data\.train_batch_size=8`\?$"),
        ("+trainer.v1.sync.parameter_sync_step=4", r"did you mean `trainer\.v1\.separate_async\.parameter_sync_step`"),
        ("+optim_lr=1", r"did you mean `actor_rollout_ref\.actor\.optim\.lr`\?$"),
        ("+rae_decay=1", r"did you mean `algorithm\.rae\.decay`\?$"),
        ("+lr=1", r"did you mean `actor_rollout_ref\.actor\.optim\.lr`\?$"),
        ("+validation.opponent=perfect", r"did you mean `validation\.opponents`\?$"),
        ("+ray_kwargs.ray_innit.num_cpus=1", r"did you mean `ray_kwargs\.ray_init`|`ray_kwargs\.ray_init\.num_cpus`"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(override: str, message: str, tmp_path_factory) -> None:
    made = unsettled(tmp_path_factory.getbasetemp())
    key, value = override.lstrip("+").split("=")
    OmegaConf.update(made, key, value, force_add=True)
    with pytest.raises(ConfigError, match=message):
        names().refuse_unknown(made, ["seed=1", override])


def test_an_unknown_key_of_hydras_is_refused(tmp_path) -> None:
    hydra_config = OmegaConf.structured(HydraConf)
    OmegaConf.set_struct(hydra_config, False)
    hydra_config.job.env_set = {"ANYTHING": "1"}
    names().refuse_unknown(unsettled(tmp_path), (), hydra_config)
    OmegaConf.update(hydra_config, "sweep.dirr", "x", force_add=True)
    with pytest.raises(ConfigError, match=r"^\+hydra\.sweep\.dirr=x: .*; did you mean `hydra\.sweep\.dir`\?$"):
        names().refuse_unknown(unsettled(tmp_path), ["+hydra.sweep.dirr=x"], hydra_config)


def test_a_presets_unknown_key_is_named_by_itself(tmp_path) -> None:
    made = unsettled(tmp_path)
    OmegaConf.update(made, "fsp.sze", 3, force_add=True)
    with pytest.raises(ConfigError, match=r"^fsp\.sze: there is no such setting; did you mean `fsp\.size`\?$"):
        names().refuse_unknown(made, ["fsp.size=3"])


@pytest.mark.parametrize(
    "key",
    [
        "environment.ANYTHING",
        "actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs",
        "actor_rollout_ref.model.override_config.rope_theta",
        "actor_rollout_ref.actor.optim.override_optimizer_config.eps",
        "data.apply_chat_template_kwargs.enable_thinking",
        "ray_kwargs.ray_init.address",
        "transfer_queue.backend.SimpleStorage.anything",
        "actor_rollout_ref.actor.checkpoint.save_lora_only",
        "trainer.v1.sampler.sampler_kwargs.anything",
        "opponent_engine.rollout.max_num_seqs",
        "opponent_engine.rollout.engine_kwargs.vllm.max_logprobs",
        "opponent_engine.rollout.enable_sleep_mode",
    ],
)
def test_what_verl_vllm_and_ray_take_freely_is_free(key: str, tmp_path) -> None:
    made = unsettled(tmp_path)
    OmegaConf.update(made, key, 1, force_add=True)
    names().refuse_unknown(made)


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("model", ["tiny", "smollm2_135m", "hf"])
def test_the_config_as_it_is_has_known_keys_only(hardware: str, model: str, tmp_path) -> None:
    names().refuse_unknown(unsettled(tmp_path, hardware=hardware, model=model))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nonsense", "^nonsense: there is no such setting"),
        ("games_per_rol", r"did you mean `games_per_role`\?"),
        ("engine.max_num_seq", r"did you mean `engine\.max_num_seqs`\?"),
        ("exploitability.bye", r"did you mean `exploitability\.by`\?"),
    ],
)
def test_an_evaluations_unknown_key_is_refused(key: str, message: str) -> None:
    made = OmegaConf.load(CONFIG / "eval.yaml")
    for part in ("defaults", "hydra"):
        del made[part]
    OmegaConf.update(made, "engine.vllm.anything", 1, force_add=True)
    names("eval").refuse_unknown(made)
    OmegaConf.update(made, key, 1, force_add=True)
    with pytest.raises(ConfigError, match=message):
        names("eval").refuse_unknown(made)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("rules", 5, "a mapping"),
        ("actor_rollout_ref.model", None, "a mapping"),
        ("actor_rollout_ref.rollout.agent", [5], "a mapping"),
        ("ray_kwargs.ray_init", 5, "a mapping"),
        ("environment", None, "a mapping"),
        ("validation.exploitability", 5, "a list, such as [...]"),
        ("actor_rollout_ref.actor.checkpoint.save_contents", 5, "a list, such as [model, optimizer, extra]"),
        ("games", "Nim", "a list, such as [TicTacToe, KuhnPoker]"),
        ("validation.opponents", "random", "a list, such as [random]"),
    ],
)
def test_a_value_in_place_of_a_section_or_a_list_is_refused(key: str, value: object, kind: str, tmp_path) -> None:
    made = unsettled(tmp_path)
    OmegaConf.update(made, key, value, merge=False)
    written = "null" if value is None else str(value)
    with pytest.raises(ConfigError) as error:
        names().refuse_unknown(made)
    assert str(error.value) == f"{key}={written}: must be {kind}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.logger", "console"),
        ("rules.illegal_rewards", "loss"),
        ("actor_rollout_ref.model.lora.target_modules", "all-linear"),
        ("actor_rollout_ref.model.lora.exclude_modules", None),
        ("opponent_engine.rollout", "${actor_rollout_ref.rollout}"),
    ],
)
def test_what_may_stand_in_place_of_a_list_and_a_link_may_be_meant(key: str, value: object, tmp_path) -> None:
    made = unsettled(tmp_path)
    OmegaConf.update(made, key, value, merge=False)
    names().refuse_unknown(made)


@pytest.mark.full
@pytest.mark.parametrize("value", [None, 5, "x"])
def test_no_value_of_the_wrong_kind_ends_in_another_error(
    value: int | str | None, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every section and list, and every setting of depth 1 or 2, as a run looks at them before it starts anything."""
    with_vllm_and_gpus(monkeypatch)
    made = unsettled(tmp_path)
    before = OmegaConf.to_container(made, resolve=False)
    for key, inner in walk(before):
        if key.count(".") >= 2 and not isinstance(inner, dict | list):
            continue
        OmegaConf.update(made, key, value, merge=False)
        try:
            names().refuse_unknown(made)
            settled = pickle.loads(pickle.dumps(made))
            settle(settled, [key])
            settled.actor_rollout_ref.model.path = whole_path(settled.actor_rollout_ref.model.path)
            check(settled)
        except ValueError:  # a ConfigError is one
            pass
        except Exception as error:
            pytest.fail(f"{key}={value}: {type(error).__name__}: {error}")
        OmegaConf.update(made, key, inner, merge=False)
    assert OmegaConf.to_container(made, resolve=False) == before


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("actor_rollout_ref.model.path", "text or null"),
        ("trainer.default_local_dir", "text"),
        ("trainer.resume_from_path", "text or null"),
    ],
)
def test_a_path_is_text(setting: str, kind: str, tmp_path) -> None:
    made = config(tmp_path, f"{setting}=5")
    made.actor_rollout_ref.model.path = whole_path(made.actor_rollout_ref.model.path)
    with pytest.raises(ConfigError, match=f"^{setting}=5: must be {kind}$"):
        check(made)
