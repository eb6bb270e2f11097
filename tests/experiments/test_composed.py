"""The settings that a result keeps: those that differ from the defaults."""

from __future__ import annotations

from omegaconf import OmegaConf

from experiments.composed import differences


def test_what_differs_is_kept_and_nothing_else() -> None:
    default = OmegaConf.create({"seed": 0, "games": ["A"], "actor": {"lr": 1e-4, "clip": "${seed}"}, "empty": {}})
    config = OmegaConf.create(
        {"seed": 0, "games": ["A", "B"], "actor": {"lr": 2e-4, "clip": "${seed}"}, "more": {"x": None}}
    )
    assert differences(config, default) == {"games": ["A", "B"], "actor.lr": 2e-4, "more.x": None}
    config.actor.clip = "${actor.lr}"
    assert differences(config, default)["actor.clip"] == "${actor.lr}", "as it is written"
