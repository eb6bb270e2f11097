"""A plugin of pytest for run_scripts/try_verl.sh: the contract tests against another verl, and what moved there.

A name of verl that is imported and gone is replaced by an empty class, so that all other tests still tell.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ["verl/test_contract.py", "verl/test_contract_engine.py"]
gone: dict[str, str] = {}


def imported() -> Iterator[tuple[str, str, Path]]:
    """(module, name, file) of all that the recipe and its contract tests import from verl."""
    for file in [*sorted((ROOT / "recipe" / "spiral").rglob("*.py")), *(ROOT / "tests" / name for name in CONTRACT)]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "verl":
                yield from ((str(node.module), alias.name, file) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "", file) for alias in node.names if alias.name.split(".")[0] == "verl")


def module_of(name: str) -> types.ModuleType:
    """A module of verl, or an empty one in its place."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("verl"):
            raise
    parent, _, last = name.rpartition(".")
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    setattr(module_of(parent), last, module)
    return module


def pytest_configure(config: pytest.Config) -> None:
    for name, attribute, file in imported():
        module = module_of(name)
        if attribute and not hasattr(module, attribute):
            try:
                importlib.import_module(f"{name}.{attribute}")
            except ImportError:
                setattr(module, attribute, type(attribute, (), {}))
                gone[f"{name}.{attribute}"] = str(file.relative_to(ROOT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    import verl

    write = terminalreporter.write_line
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    write(f"\nverl at {Path(str(verl.__file__)).parent}:")
    for name, file in gone.items():
        write(f"gone     {name}, which {file} imports")
    for report in failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = (crash.message if crash else str(report.longrepr)).strip().splitlines()
        write(f"moved    {report.nodeid.split('::')[-1]}: {message[0][:300] if message else ''}")
    passed = len(terminalreporter.getreports("passed"))
    write(f"{passed} contract tests passed, {len(failed)} failed, {len(gone)} names are gone")
