"""The benchmarks that make games without a model: their games are those of a run."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.growth import measure
from benchmarks.rows import costs, games


def test_a_run_that_grows_is_in_order(tmp_path: Path) -> None:
    cost = measure(tmp_path / "run", 300)  # the audit says so, with a replay of every game
    assert cost.games == 384 and cost.bytes_a_game > 0


def test_the_work_on_rows_has_every_part() -> None:
    records = games(500)
    assert {name for name, _ in costs(records, random.Random(0))} >= {"join with turns", "advantages", "metrics"}
    advantages = [turn.advantage for record in records for turn in record.turns]
    assert len(advantages) >= 500 and None not in advantages
