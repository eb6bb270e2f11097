"""What runs of published models need, against figures that were worked out by hand; and what is said where it is too
much."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from omegaconf import DictConfig
from transformers import AutoConfig

from recipe.spiral.checks import ConfigError
from recipe.spiral.lab.models.published import PUBLISHED
from recipe.spiral.lab.planning import devices, memory_table
from recipe.spiral.lab.planning.estimate import GIB, Estimate, estimate
from recipe.spiral.lab.planning.model_size import ModelSize, of_config
from tests.made_configs import config
from tests.made_models import made_model

CARD = int(79.6 * GIB)
QWEN3_4B, QWEN3_8B = "Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B-Base"
ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
FLASH = (f"{ATTENTION}=flash_attention_2", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384")


@cache
def size(name: str) -> ModelSize:
    return of_config(AutoConfig.for_model(**PUBLISHED[name]))


def on_gpus(tmp_path: Path, *overrides: str) -> DictConfig:
    return config(tmp_path, *overrides, hardware="gpu", model="hf")


def parts(made: Estimate, phase: str) -> dict[str, float]:
    """In GiB."""
    (found,) = [each for each in made.phases if each.name == phase]
    return {row.name: row.size / GIB for row in found.rows}


@pytest.mark.parametrize(
    ("name", "billions", "rest"),
    [
        # what the models' own pages say
        ("Qwen/Qwen3-0.6B-Base", 0.6, 0.44),
        ("Qwen/Qwen3-1.7B-Base", 1.7, 1.4),
        (QWEN3_4B, 4.0, 3.6),
        (QWEN3_8B, 8.2, 6.95),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7.61, 6.53),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03, 6.98),
    ],
)
def test_published_models_have_as_many_parameters_as_they_are_said_to(name: str, billions: float, rest: float) -> None:
    model = size(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert model.layers * model.layer / 1e9 == pytest.approx(rest, rel=0.03), "without embeddings"
    assert model.root == pytest.approx(model.vocabulary * model.hidden, rel=1e-3)


def test_eight_gpus_for_four_billion_parameters(tmp_path: Path) -> None:
    """By hand, for 16,384 tokens and flash-attn: fp32 shards of 1/8, gathered root in bf16 with its gradient, an input
    of each layer kept and one layer computed again, logits in bf16."""
    made = estimate(on_gpus(tmp_path, *FLASH, "fsp.enabled=true"), size(QWEN3_4B), CARD)
    training, playing = parts(made, "training"), parts(made, "playing")
    billions = 4.022
    assert training["weights"] == training["gradients"] == pytest.approx(4e9 * billions / 8 / GIB, rel=0.01)
    assert training["optimizer"] == pytest.approx(3.7, abs=0.1)
    assert training["gathered layers"] == pytest.approx(2.2, abs=0.3)
    assert training["activations"] == pytest.approx(2.8 + 2 + 1.8, abs=0.7), "with the gradients of one layer"
    assert training["logits"] == pytest.approx(4.6 + 0.5, abs=0.1), "with two copies of a portion in fp32"
    assert sum(training.values()) - training["engines, asleep"] - training["trainer's process"] == pytest.approx(
        20, abs=3
    )
    assert playing["policy's engine"] == pytest.approx(47.8, abs=0.1)
    assert playing["opponents' engines"] == pytest.approx(15.9, abs=0.1)
    assert playing["weights and optimizer"] == pytest.approx(5.6, abs=0.1)
    assert playing["contexts and graphs"] == pytest.approx(5, abs=0.5)
    assert made.fits
    checkpoints, _ = made.disk
    assert checkpoints.size / 1e9 == pytest.approx(144, abs=2), "two that stay, and one being written"


@pytest.mark.parametrize(("steps", "number"), [(9, 1), (30, 3), (31, 4)])
def test_the_last_step_is_saved_as_well(tmp_path: Path, steps: int, number: int) -> None:
    kept = ("trainer.max_actor_ckpt_to_keep=null", "trainer.save_freq=10", f"trainer.total_training_steps={steps}")
    (row,) = estimate(on_gpus(tmp_path, *kept), size(QWEN3_4B), CARD).disk
    assert row.note.startswith(f"{number} of ")


def test_a_pools_disk(tmp_path: Path) -> None:
    """Of 4.02 billion parameters in bfloat16: 25 members, one being written, and those that two checkpoints hold."""
    pool = ("fsp.enabled=true", "fsp.update_interval=5", "trainer.save_freq=10", "trainer.max_actor_ckpt_to_keep=2")
    (_, row) = estimate(on_gpus(tmp_path, *pool), size(QWEN3_4B), CARD).disk
    assert row.size / 1e9 == pytest.approx((26 + 2 * 2) * 2 * 4.02, rel=0.01)
    assert row.note == "26 of 7.5, one of them being written, and 4 that have left it and are held by checkpoints"
    (_, row) = estimate(on_gpus(tmp_path, *pool, "actor_rollout_ref.model.lora_rank=64"), size(QWEN3_4B), CARD).disk
    assert row.size / GIB == pytest.approx(30 * 2 * 64 * 2.06e6 / GIB, rel=0.01), "adapters"


def test_a_pool_on_two_gpus_does_not_fit_and_the_mend_does(tmp_path: Path) -> None:
    run = on_gpus(tmp_path, "trainer.n_gpus_per_node=2", "fsp.enabled=true")
    made = estimate(run, size(QWEN3_4B), CARD)
    assert parts(made, "playing")["weights and optimizer"] == pytest.approx(22.5, abs=0.1)
    assert not made.fits and made.peak.name == "playing"
    change = memory_table.mend(run, size(QWEN3_4B), CARD)
    assert change == ["actor_rollout_ref.rollout.gpu_memory_utilization=0.4"]
    assert estimate(memory_table.changed(run, change), size(QWEN3_4B), CARD).fits
    text = memory_table.refusal(run, size(QWEN3_4B), made)
    assert text.startswith("memory: about 91.") and text.endswith(f"which does not fit; take {change[0]}")


@pytest.mark.parametrize(
    ("name", "states"), [("Qwen/Qwen3-0.6B-Base", 8.9), ("Qwen/Qwen3-1.7B-Base", 25.6), (QWEN3_4B, 59.9)]
)
def test_the_state_of_training_on_one_gpu_is_sixteen_bytes_a_parameter(
    tmp_path: Path, name: str, states: float
) -> None:
    training = parts(estimate(on_gpus(tmp_path, "trainer.n_gpus_per_node=1"), size(name), CARD), "training")
    assert training["weights"] + training["gradients"] + training["optimizer"] == pytest.approx(states, abs=0.2)


def test_four_billion_parameters_on_one_gpu_must_be_offloaded_or_be_an_adapter(tmp_path: Path) -> None:
    one = "trainer.n_gpus_per_node=1"
    run = on_gpus(tmp_path, one)
    assert not estimate(run, size(QWEN3_4B), CARD).fits
    assert memory_table.mend(run, size(QWEN3_4B), CARD) == ["actor_rollout_ref.actor.fsdp_config.offload_policy=true"]
    adapter = estimate(on_gpus(tmp_path, one, "actor_rollout_ref.model.lora_rank=64"), size(QWEN3_4B), CARD)
    # 2.06 million parameters at rank 1
    assert adapter.fits and parts(adapter, "training")["optimizer"] == pytest.approx(8 * 64 * 2.06e6 / GIB, rel=0.01)
    (checkpoints,) = adapter.disk
    assert checkpoints.size / GIB == pytest.approx(3 * (15 + 3 * 0.49), abs=0.5)


def test_where_no_setting_helps_more_gpus_do_or_an_adapter(tmp_path: Path) -> None:
    """On a GPU of 16 GiB an engine of 8 billion parameters must be shared."""
    run = on_gpus(tmp_path, "trainer.n_gpus_per_node=1")
    small = 16 * GIB
    assert memory_table.mend(run, size(QWEN3_8B), small) is None
    text = memory_table.refusal(run, size(QWEN3_8B), estimate(run, size(QWEN3_8B), small))
    assert text.endswith("take 2 GPUs of this size")
    two = memory_table.mend(on_gpus(tmp_path, "trainer.n_gpus_per_node=2"), size(QWEN3_8B), small)
    assert two is not None and "actor_rollout_ref.rollout.tensor_model_parallel_size=2" in two
    text = memory_table.refusal(run, size(QWEN3_8B), estimate(run, size(QWEN3_8B), 3 * GIB))
    assert text.endswith("LoRA (actor_rollout_ref.model.lora_rank=64), a smaller model, or larger GPUs")


def test_an_engine_that_gets_too_little_to_start_is_named_with_its_share(tmp_path: Path) -> None:
    """Qwen3-8B as an opponent at 0.2: 15.3 GiB of weights, and 0.8 for the 6,144 tokens of a prompt and response."""
    run = on_gpus(tmp_path, "fsp.enabled=true")
    made = estimate(run, size(QWEN3_8B), CARD)
    (short,) = made.short
    assert short.startswith("opponent_engine.gpu_memory_utilization=0.2: is 15.9 GiB, and the engine needs 17.")
    assert "(weights 15.3, cache of one prompt and response 0.8)" in short
    change = memory_table.mend(run, size(QWEN3_8B), CARD)
    assert change is not None and change[0].startswith("opponent_engine.gpu_memory_utilization=0.2")
    assert estimate(memory_table.changed(run, change), size(QWEN3_8B), CARD).fits
    own = on_gpus(tmp_path, "actor_rollout_ref.rollout.gpu_memory_utilization=0.1")
    assert estimate(own, size(QWEN3_4B), CARD).short[0].startswith("actor_rollout_ref.rollout.gpu_memory_utilization")


@pytest.mark.parametrize("cards", range(1, 9))
def test_shards_are_as_many_as_gpus(tmp_path: Path, cards: int) -> None:
    model = size("Qwen/Qwen3-0.6B-Base")
    each = f"trainer.n_gpus_per_node={cards}"
    made = estimate(on_gpus(tmp_path, each, "data.train_batch_size=840"), model, CARD)
    assert made.fits and parts(made, "training")["weights"] == pytest.approx(
        4 * model.parameters / cards / GIB, rel=0.01
    )
    machines = estimate(on_gpus(tmp_path, each, "trainer.nnodes=2"), model, CARD)
    assert parts(machines, "training")["weights"] == pytest.approx(2 * model.parameters / cards / GIB, rel=0.01)
    apart = estimate(on_gpus(tmp_path, each, "actor_rollout_ref.actor.fsdp_config.fsdp_size=1"), model, CARD)
    assert parts(apart, "training")["weights"] == pytest.approx(4 * model.parameters / GIB, rel=0.01)


@pytest.mark.parametrize(
    ("overrides", "part", "change"),
    [
        (["actor_rollout_ref.model.enable_gradient_checkpointing=false"], "activations", 1.2),
        (["actor_rollout_ref.actor.entropy_coeff=0.01"], "logits", 1.5),
        (["actor_rollout_ref.rollout.temperature=0.7"], "logits", 1.5),
        (["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768"], "logits", 1.8),
        ([f"{ATTENTION}=sdpa"], "activations", 1.15),
    ],
)
def test_what_takes_more(tmp_path: Path, overrides: list[str], part: str, change: float) -> None:
    model = size(QWEN3_4B)
    before = parts(estimate(on_gpus(tmp_path, *FLASH), model, CARD), "training")
    after = parts(estimate(on_gpus(tmp_path, *FLASH, *overrides), model, CARD), "training")
    assert after[part] > change * before[part]
    others = {name for name in before if name != part and "token_len" not in overrides[0]}
    assert {name: after[name] for name in others} == {name: before[name] for name in others}


def test_offloaded_shards_are_on_the_host_while_games_are_played(tmp_path: Path) -> None:
    offload = "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true"
    made = estimate(on_gpus(tmp_path, offload), size(QWEN3_4B), CARD)
    assert parts(made, "playing")["weights and optimizer"] == pytest.approx(1.9, abs=0.1)
    assert {row.name: row.size / GIB for row in made.host}["reference and offloaded"] == pytest.approx(30, abs=0.2)
    policy = "actor_rollout_ref.actor.fsdp_config.offload_policy=true"
    always = estimate(on_gpus(tmp_path, policy), size(QWEN3_4B), CARD)
    assert {row.name: row.size / GIB for row in always.host}["reference and offloaded"] == pytest.approx(60, abs=0.2)
    assert not parts(always, "training").keys() & {"weights", "gradients", "optimizer"}
    plain, offloaded = (estimate(config(tmp_path, *given), size(QWEN3_4B), CARD) for given in ((), (policy,)))
    assert parts(plain, "training") == parts(offloaded, "training"), "on a CPU there is nowhere else"
    kl = estimate(on_gpus(tmp_path, "actor_rollout_ref.actor.use_kl_loss=true"), size(QWEN3_4B), CARD)
    assert {row.name: row.size / GIB for row in kl.host}["reference and offloaded"] == pytest.approx(15, abs=0.2)


def test_what_the_host_holds(tmp_path: Path) -> None:
    """Where the output layer is the embedding, every rank reads all weights; with LoRA engines sleep with theirs."""

    def host(name: str, *overrides: str) -> dict[str, float]:
        rows = estimate(on_gpus(tmp_path, *overrides), size(name), CARD).host
        (read,) = [float(row.note.split()[1]) for row in rows if row.note]
        return {row.name: row.size / GIB for row in rows} | {"read": read}

    assert host(QWEN3_4B)["read"] == pytest.approx(8 * 15.0, abs=0.2)
    assert host(QWEN3_8B)["read"] == pytest.approx(30.5, abs=0.2)
    lora = host(QWEN3_4B, "actor_rollout_ref.model.lora_rank=64", "trainer.n_gpus_per_node=2")
    assert lora["engines' weights, asleep"] == pytest.approx(2 * 7.5, abs=0.1)
    assert "engines' weights, asleep" not in host(QWEN3_4B)


def test_what_verl_keeps_where_engines_have_devices_of_their_own(tmp_path: Path) -> None:
    apart, megabytes = "trainer.v1.trainer_mode=separate_async", "checkpoint_engine.update_weights_bucket_megabytes=512"
    buffers, copy = "buffers of sent weights", "weights before an update"
    for given, there, bypass in ((), False, False), ((apart,), True, False), ((apart,), True, True):
        correction = f"algorithm.rollout_correction.bypass_mode={bypass}"
        run = on_gpus(tmp_path, *given, correction, f"actor_rollout_ref.rollout.{megabytes}")
        made = estimate(run, size(QWEN3_4B), CARD)
        assert parts(made, "training").get(buffers, 0) == there
        host = {row.name: row.size / GIB for row in made.host}
        assert host.get(copy, 0) == pytest.approx(15 * (there and not bypass), abs=0.2)


def test_gpus_that_others_use_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpu_in_use", lambda: 60 * GIB)
    check_of(tmp_path / "a", "trainer.n_gpus_per_node=8", "memory.device_gib=79")
    assert "note: 60.0 GiB of a GPU are in use already" in capsys.readouterr().err
    check_of(tmp_path / "b", "memory.device_gib=2000", hardware="cpu")
    assert "in use already" not in capsys.readouterr().err


def check_of(tmp_path: Path, *overrides: str, hardware: str = "gpu") -> Estimate | None:
    model = "hf" if hardware == "gpu" else "tiny"
    run = config(tmp_path, *overrides, hardware=hardware, model=model)
    run.actor_rollout_ref.model.path = str(made_model(tmp_path / "model", QWEN3_4B))
    return memory_table.check_memory(run)


def test_a_start_prints_the_table_and_is_refused_where_it_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpu_memory", lambda: 24 * GIB)
    with pytest.raises(ConfigError, match=r"^memory: .* take .*; memory\.on_excess=warn starts it anyway$"):
        check_of(tmp_path, "trainer.n_gpus_per_node=4")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "memory, in GiB, of each GPU (24.0); estimated"
    assert lines[-1].startswith("memory: about ") and lines[-1].endswith("which does not fit")


def test_a_warning_starts_it_anyway_and_an_unknown_gpu_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpu_memory", lambda: None)
    check_of(tmp_path / "a", "memory.device_gib=24", "memory.on_excess=warn")
    assert "note: memory: about" in capsys.readouterr().err
    check_of(tmp_path / "b", "trainer.n_gpus_per_node=1")
    assert "taken for a card of 80 GB as there is none here" in capsys.readouterr().out


def test_on_a_cpu_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_of(tmp_path / "a", "memory.device_gib=2000", hardware="cpu")
    assert len(capsys.readouterr().out.splitlines()) == 1
    with pytest.raises(ConfigError, match="of the machine, while training, which does not fit; take"):
        check_of(tmp_path / "c", "memory.device_gib=40", hardware="cpu")


def test_opponents_on_devices_of_their_own_must_have_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("fsp.enabled=true", "fsp.members_per_step=2", "opponent_engine.devices=own", "memory.device_gib=79")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    with pytest.raises(ConfigError, match=r"needs 10 devices \(2 for opponents\), there are 8; take .*, shared"):
        check_of(tmp_path / "a", *own)
    apart = (*own, "trainer.v1.trainer_mode=separate_async", "actor_rollout_ref.rollout.n_gpus_per_node=3")
    with pytest.raises(ConfigError, match=r"needs 9 devices \(4 for opponents\), there are 8; take fewer"):
        check_of(tmp_path / "d", *apart, "trainer.n_gpus_per_node=2")
    made = check_of(tmp_path / "b", *own, "trainer.n_gpus_per_node=6")
    assert made is not None and made.own == 2 and "opponents' engines" not in parts(made, "playing")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    check_of(tmp_path / "c", *own)


def test_the_devices_of_a_cpu_are_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In separate_async one trains, one plays, and two are the pool's: that of a step and that of games that go on."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    apart = ("fsp.enabled=true", "opponent_engine.devices=own", "trainer.v1.trainer_mode=separate_async")
    run = (*apart, "memory.device_gib=2000")
    with pytest.raises(ConfigError, match=r"on a CPU ray_kwargs\.ray_init\.num_gpus=4"):
        check_of(tmp_path / "a", *run, hardware="cpu")
    made = check_of(tmp_path / "b", *run, "ray_kwargs.ray_init.num_gpus=4", hardware="cpu")
    two = ("ray_kwargs.ray_init.num_gpus=5", "actor_rollout_ref.rollout.nnodes=2")
    twice = check_of(tmp_path / "c", *run, *two, hardware="cpu")
    assert made is not None and twice is not None
    assert parts(twice, "training")["policy's engine"] == 2 * parts(made, "training")["policy's engine"]


def test_a_model_of_an_unknown_form_is_not_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = config(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "nobodys"}')
    run.actor_rollout_ref.model.path = str(tmp_path / "model")
    assert memory_table.check_memory(run) is None
    assert capsys.readouterr().err.startswith("memory: cannot be estimated for this model: ")


def test_forms_whose_layers_are_told_in_other_words() -> None:
    assert of_config(AutoConfig.for_model("opt")).intermediate == 3072
    with pytest.raises(ValueError, match="GPT2LMHeadModel does not say how wide its layers are"):
        of_config(AutoConfig.for_model("gpt2"))


def test_a_container_says_how_much_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(devices, "_LIMITS", (str(limit),))
    limit.write_text("max\n")
    whole = devices.host_memory()
    limit.write_text(f"{2**30}\n")
    assert devices.host_memory() == 2**30 < whole
