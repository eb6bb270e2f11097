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


def rows(title: str) -> list[tuple[list[str], list[str]]]:
    """Of the lists in a section: the names that each line begins with, and the tests with which it ends."""
    text = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line.split(": ", 1) for line in text.splitlines() if line.startswith("- `")]
    return [(re.findall(r"`([^`]+)`", names), re.findall(r"`(test_\w+)`", rest)) for names, rest in lines]


@cache
def overridden() -> frozenset[tuple[type[Any], str]]:
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
            bases = list(filter(_theirs, one.__mro__[place + 1 :]))
            for name, value in vars(part).items() if _ours(part) else ():
                special = name.startswith("__") and name != "__init__"
                if (
                    callable(value) | isinstance(value, property)
                    and not special
                    and any(name in vars(b) for b in bases)
                ):
                    found.add((part, name))
    return frozenset(found)


def _ours(one: type[Any]) -> bool:
    return one.__module__.startswith("recipe.spiral")


def _theirs(one: type[Any]) -> bool:
    return one.__module__.split(".")[0] in ("verl", "vllm", "transfer_queue")


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
    documented = {name for names, _ in rows("What we override") for name in names}
    hooks = {name: owner.__name__ for owner, name in overridden() if owner.__name__ not in INTERFACES}
    assert not sorted(f"{owner}.{name}" for name, owner in hooks.items() if name not in documented)
    assert not sorted(documented - hooks.keys()), "on the page, and not overridden"


@pytest.mark.timeout(600)
def test_every_class_with_an_override_is_on_the_page() -> None:
    """But for mixins, whose methods are those of the classes that they are mixed into."""
    owners = {owner.__name__ for owner, _ in overridden() if any(map(_theirs, owner.__mro__))}
    assert not owners - set(re.findall(r"`(\w+)`", PAGE))


def test_every_private_name_is_on_the_page() -> None:
    documented = {name for names, _ in rows("Private names that we use") for name in names}
    assert documented == private_names()


@pytest.mark.parametrize("title", ["What we override", "Private names that we use"])
def test_every_entry_has_a_contract_test(title: str) -> None:
    tests = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        tests.update(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    for names, contracts in rows(title):
        assert contracts, f"{names}: no contract test"
        assert not set(contracts) - tests, f"{names}: no such test"
