"""The classes that serve a run's rows, in the file in which verl's rollout workers look for them."""

from __future__ import annotations

import json
from pathlib import Path

from omegaconf import DictConfig, open_dict

from ..extensions import loaded
from .schedule import AGENT

FILE = "agent_loops.yaml"


def write_agent_loops(config: DictConfig, run_dir: Path) -> None:
    """Write those of games and of extensions, by what rows call them, and name the file in the config."""
    loops = {AGENT: "recipe.spiral.rollout.GameAgentLoop"}
    for extension in loaded():
        loops |= extension.agent_loops(config)
    entries = [{"name": name, "_target_": target} for name, target in loops.items()]
    (run_dir / FILE).write_text(json.dumps(entries, indent=1), encoding="utf-8")  # JSON is YAML
    with open_dict(config.actor_rollout_ref.rollout.agent):
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(run_dir / FILE)
