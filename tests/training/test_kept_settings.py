"""A run that is started again with other settings: each is followed with a line, or refused with both values."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.config.optimizer import FSDPOptimizerConfig

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.checks.errors import written
from recipe.spiral.checks.resumption import changed, check_same_model, finished, followed, settings_before
from recipe.spiral.processes.launch import LOCK
from recipe.spiral.processes.starting import own_checkpoints
from recipe.spiral.storage.checkpoints import CONFIG, IN_FLIGHT, QUEUE, TRACKER, write_state
from recipe.spiral.storage.manifest import write_manifest
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.training.kept_settings import KEPT, kept_settings
from tests.made_configs import config, with_vllm_and_gpus
from tests.storage.test_checkpoints import save
from tests.storage.test_checkpoints import state as made_state

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
MODES = ("sync", "colocate_async", "separate_async")
#: With own engines in every mode.
POOL = ["fsp.enabled=true", "opponent_engine.devices=own"]
PLAYED = "opponents=[{kind: random, share: 0.2}, {kind: perfect, share: 0.2}]"


@pytest.fixture(autouse=True)
def has_vllm_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)


def saved(tmp_path: Path, *told: str, step: int = 10, **state: Any) -> Path:
    """The last checkpoint of a run with these settings."""
    made = config(tmp_path, *told)
    folder = save(tmp_path / "run" / "checkpoints", step)
    asynchronous = made.trainer.v1.trainer_mode != "sync"
    if asynchronous:
        (folder / QUEUE).mkdir(exist_ok=True)
        (folder / IN_FLIGHT).write_text("{}")
        write_manifest(folder / QUEUE)
    baselines = {"values": [["KuhnPoker", 0, "self", 0.1]]}
    more = {"baselines": baselines, "asynchronous": asynchronous, "settings": kept_settings(made)}
    write_state(folder, made_state(step, **more | state))
    return folder


#: What each setting was, and is to be.
FOLLOWED = {
    f"{ACTOR}.optim.lr": ("0.0001", "1e-07"),
    f"{ACTOR}.optim.weight_decay": ("0.0", "0.1"),
    f"{ACTOR}.optim.betas": ("[0.9, 0.95]", "[0.9, 0.999]"),
    f"{ACTOR}.optim.lr_scheduler_type": ("constant", "cosine"),
    f"{ACTOR}.optim.lr_warmup_steps": ("-1", "5"),
    f"{ACTOR}.optim.lr_warmup_steps_ratio": ("0.0", "0.1"),
    f"{ACTOR}.optim.min_lr_ratio": ("0.0", "0.1"),
    f"{ACTOR}.optim.num_cycles": ("0.5", "1.5"),
    "trainer.total_training_steps": ("400", "800"),
    "algorithm.rae.decay": ("0.95", "0.9"),
    "algorithm.rae.update": ("game", "batch"),
    "algorithm.rae.baseline": ("true", "false"),
    "algorithm.rae.by_opponent": ("true", "false"),
}
REFUSED = {
    "seed": ("0", "1"),
    "games": ("[TicTacToe, KuhnPoker]", "[Nim]"),
    "data.train_batch_size": ("128", "64"),
    "data.games_per_start": ("1", "4"),
    "data.dataloader_num_workers": ("0", "2"),
    "trainer.device": ("cpu", "cuda"),
    f"{ACTOR}.strategy": ("fsdp2", "fsdp"),
    f"{ACTOR}.fsdp_config.fsdp_size": ("-1", "2"),
    f"{ACTOR}.fsdp_config.seed": ("42", "1"),
    f"{ACTOR}.optim.optimizer": ("AdamW", "Adam"),
    f"{ACTOR}.optim.override_optimizer_config": ("null", "{'eps': 1e-06}"),
    f"{MODEL}.lora_rank": ("8", "16"),
    f"{MODEL}.lora_alpha": ("16", "256"),
    f"{MODEL}.target_modules": ("all-linear", "['q_proj']"),
    f"{MODEL}.exclude_modules": ("null", "['lm_head']"),
    f"{MODEL}.lora.merge": ("true", "false"),
    "algorithm.rae.initial": ("0.0", "0.5"),
    "fsp.initial": ("[]", "['base']"),
}


@pytest.mark.parametrize(("mode", "rank"), [("sync", 0), ("sync", 8), ("colocate_async", 8), ("separate_async", 0)])
def test_what_can_be_followed_is_with_a_line(tmp_path: Path, mode: str, rank: int) -> None:
    told = [f"trainer.v1.trainer_mode={mode}", f"{MODEL}.lora_rank={rank}"]
    folder = saved(tmp_path, *told)
    check(made := config(tmp_path, *told))
    assert followed(made) == []
    check(made := config(tmp_path, *told, *(f"{setting}={now}" for setting, (_, now) in FOLLOWED.items())))
    lines = [f"{setting}: {before} up to {folder}, {now} from there on" for setting, (before, now) in FOLLOWED.items()]
    assert sorted(followed(made)) == sorted(lines)


@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_followed_is_refused_with_both_values(tmp_path: Path, mode: str) -> None:
    told = [f"trainer.v1.trainer_mode={mode}", *POOL, f"{MODEL}.lora_rank=8", f"{MODEL}.lora.merge=true"]
    pool = {"members": [], "rating": 1500.0, "newest": -1, "late": 0}
    folder = saved(tmp_path, *told, league=made_state(10)["league"] | {"pool": pool})
    check(config(tmp_path, *told))
    changes = [f"{setting}={now}" for setting, (_, now) in REFUSED.items()]
    found = changed(config(tmp_path, *told, *changes), folder)
    assert {kept.setting: (written(before), written(now)) for kept, before, now in found} == REFUSED
    assert not [kept for kept, _, _ in found if kept.followed]
    for setting, now in ((f"{MODEL}.lora_rank", "0"), (f"{MODEL}.lora_alpha", "256"), ("seed", "1")):
        before = REFUSED[setting][0]
        with pytest.raises(ConfigError) as error:
            check(config(tmp_path, *told, f"{setting}={now}"))
        mend = f"take {setting}={before}, or another run_dir"
        assert (
            str(error.value) == f"{setting}={now}: cannot go on from {folder}, which was trained with {before}; {mend}"
        )
        check(config(tmp_path, *told, f"{setting}={now}", "trainer.resume_mode=disable"))


@pytest.mark.parametrize("change", ["fsp.enabled=false", "opponents=[]", "opponents=[{kind: random, share: 0.2}]"])
def test_games_in_flight_keep_whom_they_are_played_against(tmp_path: Path, change: str) -> None:
    more = "opponents=[{kind: random, share: 0.1}, {kind: perfect, share: 0.3}, {kind: random, name: b, share: 0.1}]"
    mode = "trainer.v1.trainer_mode=colocate_async"
    saved(tmp_path, *POOL, PLAYED, mode)
    check(config(tmp_path, *POOL, mode, more))
    with pytest.raises(ConfigError, match=rf"^{change.split('=')[0]}=.*: cannot go on from .*, which was trained with"):
        check(config(tmp_path, *POOL, PLAYED, mode, change))
    shutil.rmtree(tmp_path / "run")
    saved(tmp_path, *POOL, PLAYED)
    check(config(tmp_path, *POOL, PLAYED, change))


@pytest.mark.parametrize("mode", MODES)
def test_as_many_members_as_have_games_in_flight_are_loaded(tmp_path: Path, mode: str) -> None:
    told, pool = [*POOL, f"trainer.v1.trainer_mode={mode}"], {"members": [], "rating": 1500.0, "newest": -1, "late": 0}
    saved(tmp_path, *told, "fsp.members_per_step=3", league=made_state(10)["league"] | {"pool": pool})
    check(config(tmp_path, *told, "fsp.members_per_step=4"))
    fewer = config(tmp_path, *told, "fsp.members_per_step=2")
    if mode == "sync":
        return check(fewer)
    with pytest.raises(ConfigError, match=r"^fsp\.members_per_step=2: cannot go .*; take fsp\.members_per_step=3"):
        check(fewer)


def test_a_critic_keeps_what_is_its_own(tmp_path: Path) -> None:
    gae = "algorithm.adv_estimator=gae"
    folder = saved(tmp_path, gae, critic=True)
    shutil.copytree(folder / "actor", folder / "critic")
    check(made := config(tmp_path, gae, "critic.optim.lr=1e-3"))
    assert followed(made) == [f"critic.optim.lr: 1e-05 up to {folder}, 0.001 from there on"]
    with pytest.raises(ConfigError, match=r"^critic\.model\.lora_rank=8: .*, which was trained with 0; take"):
        check(config(tmp_path, gae, "critic.model.lora_rank=8"))
    shutil.rmtree(tmp_path / "run")
    saved(tmp_path)
    check(made := config(tmp_path, "critic.optim.lr=1e-3"))
    assert followed(made) == []


def test_a_fork_has_games_of_its_own_and_the_others_settings(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    told = [f"run_dir={tmp_path / 'fork'}", "trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]
    check(made := config(tmp_path, *told, "games=[Nim]"))
    assert followed(made) == [f"games: [TicTacToe, KuhnPoker] up to {folder}, [Nim] from there on"]
    with pytest.raises(ConfigError, match=r"^seed=1: .* with 0; take seed=0, or trainer\.resume_mode=disable$"):
        check(config(tmp_path, *told, "seed=1"))


def test_a_checkpoint_of_version_0_1_0_is_known_from_what_lies_beside_it(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    write_state(folder, made_state(10, seed=3, games="[Nim]"))
    made = config(tmp_path)
    known = {"seed": 3, "games": "[Nim]", "batch_unit": "games"}
    assert settings_before(made, folder) == known
    kept = {"seed": 4, "actor_rollout_ref": {"actor": {"optim": {"lr": 1e-3}}, "model": {"lora_alpha": 1, "path": "a"}}}
    OmegaConf.save(OmegaConf.create(kept), tmp_path / "run" / CONFIG)
    (folder / "actor/lora_train_meta.json").write_text('{"r": 8, "lora_alpha": 64}')
    known = settings_before(made, folder)
    assert known[f"{ACTOR}.optim.lr"] == 1e-3 and known["seed"] == 3
    assert (known[f"{MODEL}.lora_rank"], known[f"{MODEL}.lora_alpha"]) == (8, 64)
    with pytest.raises(ConfigError, match=r"^actor_rollout_ref\.model\.lora_rank=0: .* with 8; take"):
        check(config(tmp_path, "seed=3", "games=[Nim]"))


def test_the_table_has_settings_that_there_are_and_all_of_an_optimizer(tmp_path: Path) -> None:
    names = [kept.setting for kept in KEPT]
    assert len({*names}) == len(names)
    values = kept_settings(config(tmp_path))
    assert [name for name in names if name not in values] == ["data.sampler.class_path"]  # where a user names one
    of_verl = {field.name for field in dataclasses.fields(FSDPOptimizerConfig)}
    elsewhere = {
        "clip_grad",
        "grad_clip",
        "total_training_steps",
        "_target_",
    }  # of a step; and the trainer's, which verl hands on
    for part in (f"{ACTOR}.optim.", "critic.optim."):
        assert {name.removeprefix(part) for name in names if name.startswith(part)} == of_verl - elsewhere


def test_a_run_that_is_done_says_so_and_what_differs(tmp_path: Path) -> None:
    steps, tested = "trainer.total_training_steps=10", "trainer.test_freq=5"
    saved(tmp_path, steps)
    made = config(tmp_path, steps, tested, "trainer.val_before_train=false")
    run_dir, path = tmp_path / "run", f"{MODEL}.path={tmp_path}"
    trained = config(tmp_path, steps, tested, path)
    trained.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(run_dir / "agent_loops.yaml")
    OmegaConf.save(trained, run_dir / CONFIG, resolve=True)
    assert finished(made) == [], "the last validation is missing"
    MetricsFile(run_dir).log({"val-core/win": 1.0}, 10)
    done, *differs = finished(made)
    assert f"{run_dir}: the run is done: it has global_step_10, and trainer.total_training_steps=10" in done
    assert differs == ["trainer.val_before_train=false: it was trained with true"]
    for fewer in (
        config(tmp_path, "trainer.total_training_steps=4", tested),
        config(tmp_path, steps, "trainer.test_freq=-1"),
    ):
        assert finished(fewer)
    for more in (
        config(tmp_path, "trainer.total_training_steps=11", tested),
        config(tmp_path, steps, tested, "trainer.resume_mode=disable"),
        config(tmp_path, steps, tested, "trainer.val_only=true"),
        config(tmp_path, steps, tested, f"run_dir={tmp_path / 'other'}"),
        config(tmp_path, "trainer.total_training_steps=null", tested),
    ):
        assert finished(more) == []
    (run_dir / "checkpoints" / TRACKER).unlink()
    assert finished(made) == []


def test_no_run_takes_the_checkpoints_of_another_for_its_own(tmp_path: Path) -> None:
    disk, inside = tmp_path / "disk", tmp_path / "run/checkpoints"
    save(disk, 400)
    made = config(tmp_path, "trainer.test_freq=-1", f"trainer.default_local_dir={disk}")
    other = config(tmp_path / "other", "trainer.test_freq=-1", f"trainer.default_local_dir={disk}")
    assert finished(other), "of before, when nothing told whose they are"
    with own_checkpoints(made):
        assert (disk / LOCK).is_file()
    assert finished(made)
    with pytest.raises(ConfigError, match=rf"local_dir={disk}: has the checkpoints of the run in {tmp_path}/run;"):
        finished(other)
    other.trainer.default_local_dir = str(save(inside, 400).parent)
    OmegaConf.save(config(tmp_path), inside.parent / CONFIG)
    with pytest.raises(ConfigError, match=rf"local_dir={inside}: has the checkpoints of the run in {tmp_path}/run;"):
        finished(other)


def test_another_model_is_refused_with_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one of before may be in another place now; and where it is, it is to be taken."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    folder = saved(tmp_path, f"{MODEL}.path={first}")
    refused = f"{MODEL}.path={second}: cannot go on from {folder}, which was trained from {first}"

    def look(path: Any) -> None:
        check_same_model(config(tmp_path, f"{MODEL}.path={path}"))

    look(first)
    (tmp_path / "link").symlink_to(first)
    look(tmp_path / "link")
    with pytest.raises(ConfigError, match=rf"^{refused}; take {MODEL}.path={first}, or another run_dir$"):
        look(second)
    assert capsys.readouterr().err == ""
    first.rmdir()
    look(second)
    assert f"was trained from, {first}, is not here; it must be the same" in capsys.readouterr().err
    saved_of_hub = settings_before(config(tmp_path), folder) | {f"{MODEL}.path": "a/b"}
    write_state(folder, made_state(10, settings=saved_of_hub))
    with pytest.raises(ConfigError, match=r"which was trained from a/b; take"):
        look("a/c")
    look("a/b")
    look(second)
    (folder.parent / TRACKER).unlink()
    look("a/c")
