"""Checks that the run's opponents can play: a failure would come when their first game does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..opponents.engine_settings import has_adapter
from ..opponents.fixed_opponents import MODEL, entry_of, kinds, make_player, parse_opponents
from ..opponents.model_files import CONFIGS, check_whole, form_of, is_hub_id, local
from ..opponents.pool import snapshot_step
from ..players.seats import BASE
from ..rollouts.schedule import matches, parse_games, validated_games


def check_opponents(config: DictConfig) -> None:
    """Check ``opponents``, their shares with the pool's, and those of validation. Raises ValueError, or ImportError
    where one needs a package that is not installed."""
    fsp, lora, opponents = config.fsp, has_adapter(config), parse_opponents(config.opponents)
    for opponent in opponents:
        with entry_of("opponents", opponent.name):
            if snapshot_step(opponent.name) is not None or (opponent.name == BASE and BASE in list(fsp.initial)):
                raise ValueError(f"name={opponent.name}: is that of a member of the pool; give another name")
            if opponent.kind == MODEL:
                _check_model(opponent.settings.get("path"), lora)
                continue
            make_player(opponent.kind, opponent.settings)
            for game in (share.id for share in parse_games(config.games) if opponent.plays(share.id)):
                kinds()[opponent.kind].check_game(game)
    shares = sum(opponent.share for opponent in opponents)
    if fsp.enabled and fsp.ratio + shares > 1 + 1e-9:
        raise ValueError(f"fsp.ratio={fsp.ratio}: must be at most 1 together with the opponents' shares ({shares:g})")
    validates = config.trainer.test_freq > 0 or config.trainer.val_before_train
    matches(config.validation.opponents, config.opponents, validated_games(config), required=validates)


def check_initial(config: DictConfig) -> None:
    """Check the members that a pool begins with, where a run has no checkpoint of its pool yet."""
    for path in config.fsp.initial:
        if path != BASE:
            with entry_of("fsp.initial", path):
                _check_model(path, has_adapter(config))
    if config.fsp.enabled and len(config.fsp.initial) >= config.fsp.size:
        raise ValueError(
            f"fsp.size={config.fsp.size}: fsp.initial has {len(config.fsp.initial)} members, which never leave; take a "
            "larger pool"
        )


def _check_model(path: Any, lora: bool) -> None:
    """An engine loads models, and the policy's engine with LoRA only adapters."""
    if isinstance(path, str) and is_hub_id(path):
        local(path, CONFIGS)
        return
    kind, form = ("an adapter", "adapter") if lora else ("a whole model", "hf")
    if not isinstance(path, str) or form_of(Path(path).expanduser()) != form:
        raise ValueError(f"path={path}: must be the folder of {kind}, as the policy is; export a checkpoint")
    check_whole(Path(path).expanduser(), "path")


PARTS = (check_opponents,)
