"""Checks whether ``fsp``, ``opponents``, ``opponent_engine`` and ``validation.opponents`` can be played."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from omegaconf import DictConfig

from ..opponents.engine_settings import has_adapter, models_served, number_of_slots
from ..opponents.fixed_opponents import MODEL, OWN, FixedOpponent, parse_opponents
from ..opponents.kinds import entry_of, kinds, make_player
from ..opponents.league import League
from ..opponents.model_files import CONFIGS, check_unchanged, check_whole, form_of, is_hub_id, local, whole_path
from ..opponents.pool import snapshot_step
from ..players.seats import BASE
from ..rollouts.schedule import parse_games, validated_games
from ..rollouts.validation_opponents import matches
from ..storage.disk import read_json
from ..workers.engine_size import engine_ranks

#: Share of a GPU's memory that all its engines together may plan with.
ALL_SHARES = 0.95


def check_opponents(config: DictConfig) -> None:
    """Check what can be checked without a model."""
    games = [share.id for share in parse_games(config.games)]
    for opponent in parse_opponents(config.opponents):
        with entry_of("opponents", opponent.name):
            plays = [game for game in games if opponent.plays(game)]
            if opponent.games is not None and not plays:
                raise ValueError(
                    f"plays {', '.join(opponent.games)}, and the run's games are {', '.join(games)}: it would never "
                    "play"
                )
            if opponent.share == 0 and opponent.name not in list(config.validation.opponents):
                raise ValueError("has no share, and would never play: give it share: 0.1")
            if snapshot_step(opponent.name) is not None:
                raise ValueError(f"name={opponent.name!r}: is that of a snapshot; give another name")
            _check_settings(opponent, plays)
    league = League(config)
    validates = config.trainer.test_freq > 0 or config.trainer.val_before_train
    matches(config.validation.opponents, config.opponents, validated_games(config), required=validates)
    _check_engine(config, models_served(config))
    for opponent in league.fixed.values():
        if opponent.kind == MODEL:
            _check_model(opponent, config, has_adapter(config))
    _check_pool(config, league)


def _check_engine(config: DictConfig, models: int) -> None:
    """Check that engines on the policy's devices divide them, and that those on a GPU, all awake, have the memory."""
    settings = config.opponent_engine
    if not models or settings.devices == "own" or has_adapter(config):
        return
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    devices, ranks = trainer.n_gpus_per_node * trainer.nnodes, engine_ranks(rollout)
    slots, share = number_of_slots(settings, models, devices, ranks), settings.gpu_memory_utilization
    engines, policy = -(-slots * ranks // devices), rollout.gpu_memory_utilization
    if trainer.device != "cpu" and (total := policy + engines * share) > ALL_SHARES:
        raise ValueError(
            f"opponent_engine.gpu_memory_utilization={share}: {engines} opponents on each GPU and the policy's "
            f"actor_rollout_ref.rollout.gpu_memory_utilization={policy} make {total:.2f} of its memory, and must stay "
            f"within {ALL_SHARES}; lower one of them, or fsp.members_per_step"
        )


def _check_pool(config: DictConfig, league: League) -> None:
    fsp, steps = config.fsp, config.trainer.total_training_steps
    if not fsp.enabled:
        return
    if fsp.ratio + (fixed := sum(opponent.share for opponent in league.fixed.values())) > 1 + 1e-9:
        raise ValueError(f"fsp.ratio={fsp.ratio}: must be at most 1 together with the opponents' shares ({fixed:g})")
    if not fsp.initial and (fsp.update_interval is None or fsp.start_from >= steps):
        raise ValueError(
            f"fsp.enabled=true: nobody would ever be in the pool, with fsp.update_interval={fsp.update_interval}, "
            f"fsp.start_from={fsp.start_from} and trainer.total_training_steps={steps}; give fsp.initial, or start "
            "earlier"
        )
    if BASE in league.fixed and BASE in list(fsp.initial):
        raise ValueError(f"opponents: {BASE} is a member of the pool already, by fsp.initial; leave out one of them")


def _check_settings(opponent: FixedOpponent, games: Sequence[str]) -> None:
    if opponent.kind == MODEL:
        if extra := set(opponent.settings) - {"path"}:
            raise ValueError(f"unknown: {', '.join(sorted(extra))}; kind model takes path")
        if not opponent.settings.get("path"):
            raise ValueError("kind model needs a path")
        return
    try:
        make_player(opponent.kind, opponent.settings)
    except ValueError as error:
        near = [name for key in opponent.settings for name in get_close_matches(key, OWN, n=1)]
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{error}{meant}") from error
    for game in games:
        try:
            kinds()[opponent.kind].check_game(game)
        except ValueError as error:
            mend = "give its entry the games that it plays (games: [...]), or leave it out"
            raise ValueError(f"{error}; {mend}") from error


def _check_model(opponent: FixedOpponent, config: DictConfig, lora: bool) -> None:
    path = Path(whole_path(str(opponent.settings["path"])))
    what = f"opponents: {opponent.name}: path={path}"
    if path.is_dir():
        check_unchanged(path, what)
    if lora:
        base = str(path) == str(whole_path(config.actor_rollout_ref.model.path))
        if base != (opponent.name == BASE) or not (base or (path / "adapter_config.json").is_file()):
            raise ValueError(
                f"{what}: the policy is a LoRA adapter, and its opponents are adapters on its engine: give a folder of "
                f"PEFT's, or name={BASE} and actor_rollout_ref.model.path itself; another model can play by kind api"
            )
        return
    if is_hub_id(given_path := str(opponent.settings["path"])) and config.dry_run:  # which asks nobody
        return
    path = local(given_path, CONFIGS, f"opponents: {opponent.name}: path=")
    if not (path / "config.json").is_file():
        raise ValueError(f"{what}: holds no config.json, so it is no Hugging Face model")
    mine = Path(str(config.actor_rollout_ref.model.path)).expanduser() / "config.json"
    if mine.is_file():
        ours, theirs = (read_json(file) for file in (mine, path / "config.json"))
        unlike = [key for key in ("architectures", "vocab_size", "hidden_size") if ours.get(key) != theirs.get(key)]
        if unlike:
            raise ValueError(
                f"{what}: is not of the policy's architecture ({', '.join(unlike)} differ), whose engine it would play "
                "in; serve it by any OpenAI-compatible server, and take kind api"
            )


def check_initial(config: DictConfig) -> None:
    """Check the members that a pool begins with, where a run has no checkpoint of its pool yet."""
    lora = has_adapter(config)
    for path in config.fsp.initial:
        if path == BASE:
            continue
        if isinstance(path, str) and is_hub_id(path):
            if not config.dry_run:  # else the hub is asked when all workers stand
                local(path, CONFIGS, "fsp.initial: ")
        elif not isinstance(path, str) or form_of(Path(path).expanduser()) != ("adapter" if lora else "hf"):
            kind = "an adapter" if lora else "a whole model"
            raise ValueError(f"fsp.initial: {path}: must be base, or the folder of {kind}; export a checkpoint")
        else:
            check_whole(Path(path).expanduser(), "fsp.initial")
    if config.fsp.enabled and len(config.fsp.initial) >= config.fsp.size:
        raise ValueError(
            f"fsp.size={config.fsp.size}: fsp.initial has {len(config.fsp.initial)} members, which never leave; take a "
            "larger pool"
        )


PARTS = (check_opponents,)
