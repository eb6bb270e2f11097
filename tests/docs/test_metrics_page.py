"""docs/metrics.md names every metric that the code logs, and no other.

Names come from two sides: from functions that are run on made records, and from the source, where a metric's name is a
key of a dictionary (as ``f"guard/{symptom}"``) or a timer's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import verl

from recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks import benchmark_metrics
from recipe.spiral.lab.evaluation.exploitability import live_metrics as in_training
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.policy_table import PolicyTable
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform
from recipe.spiral.lab.watching.reasoning import reasoning_metrics
from recipe.spiral.lab.watching.staleness import Bias, staleness_metrics
from recipe.spiral.match import Rules
from recipe.spiral.spin.dpo import pair_sums
from recipe.spiral.spin.pairs import find_pairs
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.made import record, turn
from tests.made_rows import rows_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
OURS, VERLS = PAGE.split("## From verl")
#: How our metrics begin; the trainer's timers are logged below timing_s.
ROOTS = ("async", "games", "turns", "pairs", "opponents", "fsp", "guard", "ref", "disk", "perf", "val-core", "val-aux")


def names(text: str) -> set[str]:
    """The metrics of the lists."""
    lines = re.findall(r"^- ((?:`[^`]+`(?:, )?)+): ", text, re.MULTILINE)
    return {name for line in lines for name in re.findall(r"`([^`]+)`", line)}


def pattern(name: str) -> re.Pattern[str]:
    """A documented name: a placeholder is any text without a slash, and "..." any end."""
    parts = re.split(r"(<[^>]*>|\.\.\.)", name)
    return re.compile("".join({"<": "[^/]+", ".": ".+"}.get(part[:1], re.escape(part)) for part in parts))


def produced() -> set[str]:
    """What the counting functions make of games of every kind."""
    turns = [turn(0, 0, advantage=0.5), turn(1, 0, "illegal", advantage=-0.5)]
    against = record(1, turns=[turn(0, 0)], trainable=(0,), opponent="pool", baselines=(0.1, None))
    games = [record(0, turns=turns, baselines=(0.1, -0.1)), against]
    pairs = set(find_pairs(rows_of(games)).metrics("train"))
    for name in pair_sums(torch.zeros(1), torch.zeros(1), 1.0):
        pairs |= {f"pairs/TicTacToe/{name}", f"actor/dpo_{name}"}
    met = [record(2, turns=[turn(0, 0)], trainable=(0,), opponent="random")]
    void = [record(3, trainable=(0,), opponent="random", discarded="void")]
    metrics = training_metrics(games, []) | reasoning_metrics(games, 10) | validation_metrics([*met, *void])
    kuhn, tictactoe = (PolicyTable(tree, uniform(tree)) for tree in map(game_tree, ("KuhnPoker", "TicTacToe")))
    metrics |= in_training.exploitability_metrics(kuhn, Rules()) | in_training.optimal(tictactoe)
    metrics |= in_training.died_out(kuhn, 0.01) | in_training.policy_metrics(kuhn)
    metrics |= staleness_metrics(games, met, 1) | Bias().add(games, met)
    return set(metrics) | pairs | set(benchmark_metrics([Anything("math500", 1), Anything("math500", 2)]))  # type: ignore[list-item]


class Anything(float):
    """A benchmark's results: whatever is read of them is a number, and has attributes and items in turn."""

    def __new__(cls, *named: object) -> Anything:
        made = super().__new__(cls, 0.5)
        vars(made).update(zip(("benchmark", "samples"), named, strict=False))
        return made

    def __getattr__(self, name: str) -> Anything:
        return Anything()

    def __getitem__(self, item: object) -> Anything:
        return Anything()


def in_source() -> set[str]:
    """Names in the source that begin as ours do, with "<>" for what is put in."""
    found = set()
    for file in (ROOT / "recipe" / "spiral").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for scope in ast.walk(tree):
            if isinstance(scope, ast.FunctionDef):
                values = dict(_assigned(scope))
                for key in _keys(scope):
                    found.update(_texts(key, values))
    return {name for name in found if name.split("/")[0] in (*ROOTS, "timing_s") and "/" in name}


def _assigned(scope: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for name, value in zip(target.elts, node.value.elts, strict=True):
                        if isinstance(name, ast.Name):
                            yield name.id, value


def _keys(scope: ast.FunctionDef) -> Iterator[ast.expr]:
    """Keys that a dictionary is made with or given, and names of timers."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.DictComp):
            yield node.key
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "marked_timer":
            yield ast.JoinedStr([ast.Constant("timing_s/"), *node.args[:1]])


def _texts(node: ast.expr, values: dict[str, ast.expr]) -> list[str]:
    """All that an expression may come to; names are looked up among the function's own."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.Name) and node.id in values:
        return _texts(values[node.id], {name: value for name, value in values.items() if name != node.id})
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, values), *_texts(node.orelse, values)]
    if isinstance(node, ast.FormattedValue):
        return _texts(node.value, values)
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            texts = [text + more for text in texts for more in _texts(part, values)]
        return texts
    return ["<>"]


def plain(name: str) -> str:
    return re.sub(r"<[^>]*>", "<>", name)


def test_the_page_has_all_that_functions_produce() -> None:
    patterns = [pattern(name) for name in names(OURS)]
    assert not [name for name in sorted(produced()) if not any(known.fullmatch(name) for known in patterns)]


def test_the_page_has_all_that_the_source_names() -> None:
    documented = names(PAGE)
    exact = {plain(name) for name in documented}
    missing = [
        name
        for name in sorted(in_source())
        if plain(name) not in exact and not any(pattern(name).fullmatch(other) for other in documented)
    ]
    assert not missing


def test_the_code_has_all_that_the_page_names() -> None:
    made, sources = produced(), {plain(name) for name in in_source()}
    stale = [
        name
        for name in sorted(names(OURS))
        if plain(name) not in sources and not any(pattern(name).fullmatch(other) for other in made)
    ]
    assert not stale


def test_the_symptoms_are_the_guards() -> None:
    from recipe.spiral.lab.watching.guard import SYMPTOMS

    row = next(line for line in PAGE.splitlines() if line.startswith("- `guard/<symptom>`"))
    assert set(re.findall(r"`(\w+)`", row)) == set(SYMPTOMS)


@pytest.fixture(scope="module")
def verls_source() -> list[str]:
    """Of the trainer and of the workers."""
    parts = (Path(verl.__file__).parent.glob(f"{part}/**/*.py") for part in ("trainer", "workers"))
    return ["".join(file.read_text(encoding="utf-8") for file in files) for files in parts]


@pytest.mark.parametrize("name", sorted(names(VERLS)))
def test_verls_metrics_are_verls(name: str, verls_source: list[str]) -> None:
    """The trainer gives all that the policy's workers name a prefix; timers are named where they are started."""
    trainer, workers = verls_source
    bare = name.removeprefix("actor/")
    timed = f'marked_timer("{name.removeprefix("timing_s/")}"' in trainer
    assert timed or f'"{name}"' in trainer or (bare != name and f'"{bare}"' in workers)
