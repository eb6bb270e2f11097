"""Tests run wherever the project is checked out: where there is no GPU, verl is imported under the CPU platform."""

from __future__ import annotations

import os

from recipe.spiral.main_spiral import detect_hardware

if detect_hardware() == "cpu":
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "recipe.spiral.platforms.cpu")
