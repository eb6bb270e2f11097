"""Opponents that cannot play are refused before anything starts, with the setting and its mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from recipe.spiral.checks import ConfigError, check
from tests.made_configs import config, with_vllm_and_gpus


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with_vllm_and_gpus(monkeypatch)
    monkeypatch.setenv("SOME_KEY", "sk-12345")


def model(folder: Path, **config_keys: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 9, **config_keys})
    )
    save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")
    return folder


API = "{kind: api, share: 0.1, model: m, base_url: 'http://127.0.0.1:1/v1', api_key_env: SOME_KEY"


@pytest.mark.parametrize(
    "overrides",
    [
        ["fsp.enabled=true", "fsp.initial=[base]"],
        ["fsp.enabled=true", "opponents=[{kind: random, share: 0.25}, {kind: perfect, share: 0.25}]"],
        ["opponents=[{kind: perfect, share: 1.0, games: [TicTacToe]}]"],
        ["opponents=[{kind: random, name: weak, share: 0.1}, {kind: random, name: weaker, share: 0.1}]"],
        ["validation.opponents=[random, perfect]"],
        ["opponents=[{kind: perfect, name: clever, alpha: 0.0}]", "validation.opponents=[clever]"],
        ["fsp.enabled=true", "fsp.initial=[some/model]", "dry_run=true"],
    ],
    ids=str,
)
def test_what_can_play_passes(tmp_path: Path, overrides: list[str]) -> None:
    check(config(tmp_path, *overrides))


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("fsp.initial=[my-modell]", r"fsp\.initial: "),
        ("opponents=[{kind: model, share: 0.1, path: my-modell}]", "opponents: model: path="),
    ],
)
def test_the_hub_is_asked_for_an_opponent_and_not_by_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, setting: str
) -> None:
    """Once, and for small files, before any worker stands."""
    asked: list[Any] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        raise OSError("no\nroute")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    check(config(tmp_path, "fsp.enabled=true", override, "dry_run=true"))
    with pytest.raises(ConfigError, match=f"^{setting}my-modell: is no folder here, .* from the hub: no route$"):
        check(config(tmp_path, "fsp.enabled=true", override))
    assert asked == [("my-modell", ["*config.json"])]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["fsp.enabled=true", "fsp.ratio=0.9", "opponents=[{kind: random, share: 0.2}]"],
            r"fsp\.ratio=0\.9: must be at most 1 together",
        ),
        (["fsp.initial=[./nowhere]"], r"fsp\.initial: \./nowhere: must be base, or"),
        (
            ["fsp.enabled=true", "fsp.size=1", "fsp.initial=[base]"],
            r"fsp\.size=1: fsp\.initial has 1 members, which never",
        ),
        (["opponents=[{kind: clever, share: 0.1}]"], r"kind=clever: unknown; known kinds: random, .*, api, model"),
        (["opponents=[{kind: random, share: 0.1, strength: 3}]"], r"^opponents: random: strength: no setting of the "),
        (["opponents=[{kind: random, shre: 0.1}]"], r"^opponents: random: shre: no setting .*; did you mean share\?$"),
        (["games=[Snake]", "opponents=[{kind: perfect, share: 0.1}]"], r"Snake.*TicTacToe"),
        (["games=[Nim]", "opponents=[{kind: random, share: 0.1, games: [TicTacToe]}]"], r"it would never play"),
        ([f"opponents=[{API.replace('SOME_KEY', 'NO_SUCH_KEY')}}}]"], r"NO_SUCH_KEY"),
        ([f"opponents=[{API}, template: octothinker}}]"], r"^opponents: api: template='octothinker'"),
        (["opponents=[{kind: api, name: gpt, share: 0.1}]"], r"^opponents: gpt: model: must be given"),
        (["opponents=[{kind: random, games: [Chess]}]"], r"^opponents: random: unknown game 'Chess'"),
        ([f"opponents=[{API}, budget_usd: 3}}]"], r"budget_usd=3\.0: needs price_in and price_out"),
        (["opponents=[{kind: model, share: 0.1}]"], r"opponents: model: kind model needs a path"),
        (["opponents=[{kind: model, share: 0.1, path: ./nowhere}]"], r"path=nowhere: holds no config\.json"),
        (["games=[Snake]", "validation.opponents=[perfect]"], r"validation\.opponents: 'perfect'"),
        (["opponents=[{kind: perfect}]"], r"perfect: has no share, and would never play"),
        (
            ["opponents=[{kind: random, name: step_000005, share: 0.1}]"],
            r"^opponents: step_000005: name='step_000005': is that of a snapshot",
        ),
        (["fsp.enabled=true", "fsp.start_from=400"], r"nobody would ever be in the pool, with .*start_from=400"),
        (["fsp.enabled=true", "fsp.update_interval=null"], r"nobody would ever be in the pool"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_play_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, *overrides))


#: Games of TextArena whose legal actions cannot be found in what they say.
NOT_AT_RANDOM = (
    *("Alquerque", "Battleship", "Breakthrough", "Briscola", "Chopsticks", "ColonelBlotto", "GermanWhist", "Golf"),
    *("LinesOfAction", "NewRecruit", "QuantumTicTacToe", "SantoriniBaseFixed", "TwoDollar"),
)


@pytest.mark.parametrize("name", NOT_AT_RANDOM)
def test_a_game_that_nobody_plays_at_random_is_trained_without_random_play(tmp_path: Path, name: str) -> None:
    pytest.importorskip("textarena", reason="needs the extra 'textarena'")
    game = f"games=[textarena:{name}-v0]"
    with pytest.raises(
        ConfigError, match=r"^validation\.opponents: 'random' plays none .*no legal action was found"
    ) as told:
        check(config(tmp_path, game))
    assert "leave validation out: trainer.test_freq=-1 trainer.val_before_train=false" in str(told.value)
    off = ["trainer.test_freq=-1", "trainer.val_before_train=false"]
    check(config(tmp_path, game, *off))
    with pytest.raises(ConfigError, match=r"^opponents: random: the random player cannot play .*; give its entry"):
        check(config(tmp_path, game, *off, "opponents=[{kind: random, share: 0.1}]"))
    check(config(tmp_path, f"games=[textarena:{name}-v0,Nim]"))
    with pytest.raises(ConfigError, match=r"random_opening=2: prompt\.style=dialogue"):
        check(config(tmp_path, "games=[{id: Nim, random_opening: 2, style: dialogue}]"))
    opening = f"games=[{{id: 'textarena:{name}-v0', random_opening: 2}}]"
    with pytest.raises(ConfigError, match=r"^games: random_opening=2: the random player cannot play .*; leave it out"):
        check(config(tmp_path, opening, *off))


def test_engines_that_share_a_gpu_share_its_memory(tmp_path: Path) -> None:
    both = ["fsp.enabled=true", "trainer.n_gpus_per_node=1", "data.train_batch_size=64"]
    check(config(tmp_path, *both, hardware="gpu"))
    with pytest.raises(ConfigError, match=r"2 opponents on each GPU and the policy's .*=0\.6 make 1\.00 of its memory"):
        check(config(tmp_path, *both, "fsp.members_per_step=2", hardware="gpu"))
    check(config(tmp_path, *both, "fsp.members_per_step=2", "opponent_engine.devices=own", hardware="gpu"))
    lora = ["actor_rollout_ref.model.lora_rank=8", "fsp.members_per_step=8"]
    check(config(tmp_path, *both, *lora, hardware="gpu"))


def test_a_frozen_model_is_of_the_policys_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = model(tmp_path / "own"), model(tmp_path / "other", vocab_size=10)
    policy = f"actor_rollout_ref.model.path={own}"
    entry = OmegaConf.create({"kind": "model", "name": "old", "share": 0.1, "path": str(model(tmp_path / "same"))})
    setup = config(tmp_path, policy)
    setup.opponents = [entry]
    check(setup)
    setup.opponents = [{**entry, "path": str(other)}]
    with pytest.raises(ConfigError, match=r"not of the policy's architecture \(vocab_size differ\)"):
        check(setup)
    setup.actor_rollout_ref.model.lora_rank = 8
    with pytest.raises(ConfigError, match=r"the policy is a LoRA adapter, and its opponents are adapters"):
        check(setup)
    monkeypatch.chdir(tmp_path)
    for path, policys in ((str(own), str(own)), ("own/", str(own)), ("own", "./own")):
        setup.opponents, setup.actor_rollout_ref.model.path = [{**entry, "name": "base", "path": path}], policys
        check(setup)
    setup.fsp.enabled, setup.fsp.initial = True, ["base"]
    with pytest.raises(ConfigError, match=r"base is a member of the pool already"):
        check(setup)


def test_initial_members_are_of_the_policys_kind_and_fewer_than_the_pool(tmp_path: Path) -> None:
    folder = model(tmp_path / "exported")
    setup = config(tmp_path, "fsp.enabled=true", f"fsp.initial=[{folder}]", "fsp.size=2")
    check(setup)
    setup.fsp.size = 1
    with pytest.raises(ConfigError, match=r"fsp\.size=1"):
        check(setup)
    setup.fsp.size, setup.actor_rollout_ref.model.lora_rank = 2, 8
    with pytest.raises(ConfigError, match=r"fsp\.initial: .*an adapter"):
        check(setup)
