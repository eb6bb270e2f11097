"""Composes the config of an evaluation. (It goes when ``main_eval`` is a program of Hydra's.)"""

from __future__ import annotations

from pathlib import Path

import hydra
from dotenv import load_dotenv
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ..processes.composing import RECIPE

#: A config, and Hydra's own node that belongs to it.
Job = tuple[DictConfig, DictConfig]


def compose(program: str) -> list[Job]:
    """What ``sys.argv`` asks for; none where Hydra printed something instead."""
    jobs: list[Job] = []
    load_dotenv(Path.cwd() / ".env")
    hydra.main(config_path=str(RECIPE / "config"), config_name=program, version_base=None)(
        lambda config: jobs.append((config, HydraConfig.get()))
    )()
    return jobs
