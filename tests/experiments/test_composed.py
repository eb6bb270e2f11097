"""The settings that a result keeps: those that differ from the defaults. And the model that a config has by a seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.composed import compose_run, differences, warm_start


def made_model(games: list[str] | None, template: str, lines: bool, seed: int) -> Path:
    """In place of ``tiny.ensure``."""
    return Path(f"/{'-'.join(games or ['usual'])}{'-lines' * lines}/{template}/{seed}")


def test_what_differs_is_kept_and_nothing_else() -> None:
    default = OmegaConf.create({"seed": 0, "games": ["A"], "actor": {"lr": 1e-4, "clip": "${seed}"}, "empty": {}})
    config = OmegaConf.create(
        {"seed": 0, "games": ["A", "B"], "actor": {"lr": 2e-4, "clip": "${seed}"}, "more": {"x": None}}
    )
    assert differences(config, default) == {"games": ["A", "B"], "actor.lr": 2e-4, "more.x": None}
    config.actor.clip = "${actor.lr}"
    assert differences(config, default)["actor.clip"] == "${actor.lr}", "as it is written"


@pytest.mark.parametrize(
    ("overrides", "model"),
    [
        (["games=[KuhnPoker]"], "/usual/chat/3"),  # a part of the usual ones, as the shipped model serves for
        (["games=[TicTacToe]", "embedded_model=tiny_lines"], "/usual-lines/chat/3"),
        (["games=[Nim]", "validation.games=[KuhnPoker]"], "/KuhnPoker-Nim/chat/3"),
    ],
)
def test_a_warm_start_is_of_the_configs_model(
    monkeypatch: pytest.MonkeyPatch, overrides: list[str], model: str
) -> None:
    monkeypatch.setattr("recipe.spiral.lab.models.tiny.ensure", made_model)
    assert warm_start(compose_run(overrides), 3) == Path(model)


@pytest.mark.parametrize("other", ["embedded_model=smollm2_135m", "actor_rollout_ref.model.path=/mine"])
def test_a_model_that_is_not_made_has_no_warm_starts(other: str) -> None:
    with pytest.raises(ValueError, match=f"warm_starts: .* not of {other.partition('=')[2]}"):
        warm_start(compose_run([other]), 3)
