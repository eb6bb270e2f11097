"""How the recipe's rooms depend on each other: imports run one way, and the core imports neither ``lab`` nor ``spin``.

Read from the files' imports, those inside functions included; what is imported for type checking only counts as well.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[1] / "recipe" / "spiral"
#: Not the core. Either may be deleted.
ADDED = {"lab", "spin"}


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


def core() -> list[Path]:
    return [file for file in files() if room(parts(file)) not in ADDED]


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


# -- the core, without lab and spin ------------------------------------------------------------------------------------


def test_the_core_imports_nothing_of_what_is_added() -> None:
    found = [
        f"{file.relative_to(RECIPE)}: {'.'.join(path)}"
        for file in core()
        for path in imported(file)
        if room(path) in ADDED or path[:3] == ["", "recipe", "spiral"]
    ]
    assert not found


def test_what_is_added_does_not_need_each_other_but_for_graders() -> None:
    found = {
        (room(parts(file)), *path[:2]) for file in files() if room(parts(file)) in ADDED for path in imported(file)
    }
    across = {needs for needs in found if needs[1] in ADDED - {needs[0]}}
    assert across == {("spin", "lab", "graders")}
