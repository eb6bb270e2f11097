"""What the stages share: the recipe's own settings for the device, and models that are made here."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.spiral import main_spiral
from recipe.spiral.checks.settle import settle
from recipe.spiral.lab.evaluation import settings as _keys  # noqa: F401  (it registers an evaluation's keys)
from recipe.spiral.lab.models import embedded

#: The keys of the config come with the program.
RECIPE = Path(main_spiral.__file__).parent
#: The recipe's names for the devices.
HARDWARE = {"cuda": "gpu", "cpu": "cpu"}
#: Of a GPU for an engine of the tiny model: a share that is surely free, and a cache of a fixed size. With it vLLM does
#: not measure how much memory is free, which fails where another stage's engine ends meanwhile.
SHARE, CACHE = 0.08, 2**30
LORA = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM", "init_lora_weights": False}


def composed(program: str, *overrides: str) -> DictConfig:
    """A program's config: ``spiral_trainer`` or ``eval``."""
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        config = compose(program, list(overrides))
    if program == "spiral_trainer":
        settle(config)
    return config


def prepare(config: DictConfig) -> None:
    """Give this process the environment that a config's processes have, before it imports verl or vLLM."""
    for name, value in OmegaConf.to_container(config.environment, resolve=True).items():
        os.environ.setdefault(name, str(value))
    for module in filter(None, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")):
        importlib.import_module(module)


def tiny_model() -> Path:
    """The tiny model that comes with the recipe."""
    return embedded("tiny")


def other_weights(model: Path, folder: Path, seed: int) -> Path:
    """The same model with each of its weights changed; returns ``folder``."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    torch.manual_seed(seed)
    file = folder / "model.safetensors"
    file.chmod(0o644)
    changed: dict[str, Any] = {}
    for name, weight in load_file(file).items():
        changed[name] = weight + 0.2 * weight.float().std(unbiased=False) * torch.randn_like(weight)
    save_file(changed, file, {"format": "pt"})
    return folder


def adapter(model: Path, folder: Path, seed: int) -> Path:
    """A LoRA adapter of the model with random weights; returns ``folder``."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    made = get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), LoraConfig(**LORA))
    for name, parameter in made.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    made.save_pretrained(folder)
    return folder


def nvidia_smi(fields: str) -> list[list[str]]:
    """By card: what nvidia-smi says of it. Empty where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return [row for row in rows if len(row) == fields.count(",") + 1]
