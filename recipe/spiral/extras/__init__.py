"""What to install for what only some uses need. The names are those of the project's extras (``pyproject.toml``).

Messages name packages, not extras: this recipe is not on PyPI, and a copy of it in a fork of verl has no extras.
"""

from __future__ import annotations

import shlex

EXTRAS = {
    "api": ("openai>=2.0.0",),
    "math": ("math-verify", "datasets"),
    "plots": ("matplotlib",),
    "report": ("plotly",),
    "smollm2": ("gguf",),
    "textarena": ("textarena==0.7.4",),
    "web": ("starlette>=1.0.1", "uvicorn"),
    "words": ("pyspellchecker",),
}


def install(extra: str) -> str:
    """The command that installs an extra's packages."""
    return shlex.join(["pip", "install", *EXTRAS[extra]])
