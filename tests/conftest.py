"""Tests run wherever the project is checked out: where there is no GPU, verl is imported under the CPU platform."""

from __future__ import annotations

import os

from hypothesis import settings

from recipe.spiral.running.composing import detect_hardware

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if detect_hardware() == "cpu":
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "recipe.spiral.workers.platforms.cpu")
