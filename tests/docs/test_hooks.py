"""docs/verl.md names every method of verl's or vLLM's that we override and every private name of theirs that we use.

Both are found in the code: overrides by importing all our classes and looking through their bases, private names by
reading the source for attributes with an underscore that nothing of ours defines.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

import recipe.spiral
from recipe.spiral.trainer import trainer_class

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "verl.md").read_text(encoding="utf-8")
#: Importing it patches vLLM in this process, which other tests want as it is; it derives from nothing.
NOT_IMPORTED = "cpu_worker"
#: Interfaces whose methods must all be written: the page names the class that does so.
INTERFACES = {"PlatformCPU"}


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def first_column(text: str) -> list[list[str]]:
    """The names in the first cell of each row of the tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row) for row in rows]


@cache
def overridden() -> frozenset[tuple[str, str]]:
    """(class of ours, method of verl's or vLLM's that it overrides), mixins as part of the classes they are used in."""
    for module in pkgutil.walk_packages(recipe.spiral.__path__, "recipe.spiral."):
        if not module.name.endswith(("__main__", NOT_IMPORTED)):
            importlib.import_module(module.name)
    loaded = [module for name, module in list(sys.modules.items()) if name.startswith("recipe.spiral")]
    classes = {value for module in loaded for value in vars(module).values() if inspect.isclass(value)}
    classes = {one for one in classes if _ours(one)} | {trainer_class(mode) for mode in TRAINER_REGISTRY}
    found = set()
    for one in classes:
        for place, part in enumerate(one.__mro__):
            bases = [base for base in one.__mro__[place + 1 :] if base.__module__.split(".")[0] in ("verl", "vllm")]
            for name, value in vars(part).items() if _ours(part) else ():
                special = name.startswith("__") and name != "__init__"
                if (
                    callable(value) | isinstance(value, property)
                    and not special
                    and any(name in vars(b) for b in bases)
                ):
                    found.add((part.__name__, name))
    return frozenset(found)


def _ours(one: type[Any]) -> bool:
    return one.__module__.startswith("recipe.spiral")


def private_names() -> set[str]:
    """Attributes with one underscore that are read in our code and defined nowhere in it."""
    defined, used = set(), set()
    for file in (ROOT / "recipe" / "spiral").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg:
                defined.add(node.arg)
            elif isinstance(node, ast.Attribute):
                (defined if isinstance(node.ctx, ast.Store) else used).add(node.attr)
    private = {name for name in used - defined if re.fullmatch(r"_[a-zA-Z]\w*", name)}
    return private - {"_exit", "_target_"}  # os's and Hydra's


@pytest.mark.timeout(600)
def test_every_override_is_on_the_page() -> None:
    documented = {(names[0], name) for names in first_column(section("What we override")) for name in names[1:]}
    hooks = {(owner, name) for owner, name in overridden() if owner not in INTERFACES}
    by_name = {name for _, name in documented}
    assert not sorted(f"{owner}.{name}" for owner, name in hooks if name not in by_name)
    assert not sorted(f"{owner}.{name}" for owner, name in documented if name not in {name for _, name in hooks})
