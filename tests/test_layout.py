"""How the recipe's rooms depend on each other: imports run one way, and the lower rooms need no framework.

Read from the files' imports, those inside functions included; what is imported for type checking only counts as well.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[1] / "recipe" / "spiral"
#: verl's world; torch is verl's, too.
FRAMEWORKS = {"verl", "ray", "vllm", "transfer_queue", "tensordict"}
#: These are read, tested and benchmarked without it. For those with True, torch is not needed either.
PURE = {"games": True, "players": True, "match": True, "opponents": True, "storage": True, "rae": False}


def parts(file: Path) -> list[str]:
    names = list(file.relative_to(RECIPE).with_suffix("").parts)
    return names[:-1] if names[-1] == "__init__" else names


def imported(file: Path) -> Iterator[list[str]]:
    """What a file imports: our own modules as paths below ``recipe.spiral``, others' with an empty first part."""
    package = [*file.relative_to(RECIPE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield ["", *alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield ["", *str(node.module).split(".")]
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                inner = RECIPE.joinpath(*base, alias.name)
                yield [*base, alias.name] if inner.is_dir() or inner.with_suffix(".py").is_file() else base


def room(path: list[str]) -> str:
    return path[0] if path else "__init__"


def files() -> list[Path]:
    return sorted(RECIPE.rglob("*.py"))


def test_the_top_tells_the_story_in_one_sitting() -> None:
    assert len(list(RECIPE.glob("*.py"))) <= 8


def test_rooms_depend_on_each_other_in_one_direction() -> None:
    """A file at the top is a room, and so is a folder: there is an order in which each needs only earlier ones."""
    needs: dict[str, set[str]] = {}
    for file in files():
        here = room(parts(file))
        needs.setdefault(here, set()).update({room(path) for path in imported(file) if path[:1] != [""]} - {here})
    tuple(TopologicalSorter(needs).static_order())  # raises CycleError, with the circle


def test_files_depend_on_each_other_in_one_direction() -> None:
    needs: dict[str, set[str]] = {}
    for file in files():
        if file.name != "__init__.py":
            needs[".".join(parts(file))] = {".".join(path) for path in imported(file) if path[:1] != [""]}
    tuple(TopologicalSorter(needs).static_order())


@pytest.mark.parametrize("name", PURE)
def test_lower_rooms_need_no_framework(name: str) -> None:
    forbidden = FRAMEWORKS | ({"torch", "transformers"} if PURE[name] else set())
    found = [
        f"{file.relative_to(RECIPE)}: {path[1]}"
        for file in files()
        if room(parts(file)) == name
        for path in imported(file)
        if path[0] == "" and path[1] in forbidden
    ]
    assert not found


def test_training_imports_nothing_of_evaluation() -> None:
    """Benchmarks during training come through ``rollouts/benchmarks.py``, which loads them where they are asked for."""
    apart = {"evaluation", "main_eval", "play", "report"}
    found = [
        f"{file.relative_to(RECIPE)}: {'.'.join(path)}"
        for file in files()
        if room(parts(file)) not in apart
        for path in imported(file)
        if room(path) == "evaluation"
    ]
    assert not found
