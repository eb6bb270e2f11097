"""Measures what a step's rows cost the trainer besides the model: accounting, RAE and metrics.

    python benchmarks/rows.py [--rows 10000 100000] [--json FILE]

Games are made by ``synthetic_run.py``; each trainable player's turn is a row of 4 response tokens. The figures are CPU
seconds of one process. What TransferQueue costs is not in them: the rows are in this process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.synthetic_run import Games, config  # noqa: E402
from recipe.spiral.lab.watching.reasoning import reasoning_metrics  # noqa: E402
from recipe.spiral.players.records import GameRecord  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402
from recipe.spiral.processes.garbage import collect_less  # noqa: E402
from recipe.spiral.rae import RoleBaselines, rae_advantages  # noqa: E402
from recipe.spiral.training.filters import Filters  # noqa: E402
from recipe.spiral.training.launched import Launch  # noqa: E402
from recipe.spiral.training.metrics import training_metrics  # noqa: E402
from recipe.spiral.training.rows import Rows  # noqa: E402

#: CPU seconds of a million rows, all parts but the metrics together.
TARGET = 2.0
TOKENS = 4


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--rows", type=within(int, 1), nargs="+", default=[10_000, 100_000], help="how many (10000 100000)"
    )
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = []
    for number in arguments.rows:
        records = games(number)
        parts = dict(costs(records, random.Random(0)))
        figures.append({"rows": sum(len(record.turns) for record in records), "games": len(records), **parts})
        total = sum(parts.values())
        count = figures[-1]["rows"]
        print(
            f"\n{count:,} rows of {len(records):,} games: {total:.2f} CPU seconds, {total / count * 1e6:.1f} µs a row"
        )
        for name, seconds in parts.items():
            print(f"  {name:<24} {seconds:8.3f} s")
        alone = (total - parts["metrics"]) / count * 1e6
        print(f"  a million rows at this pace: {alone:.1f} s without the metrics (target: {TARGET:g} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def games(number: int) -> list[GameRecord]:
    """Games that have at least so many turns together, as they come from the rollout workers."""
    made, records, turns = Games(config(Path("unused"))), [], 0
    for step in range(1, number):
        for record in made.step(step):
            records.append(record)
            turns += len(record.turns)
        if turns >= number:
            break
    for record in records:
        record.turns = [type(turn)(**vars(turn)) for turn in record.turns]  # a game's turns are its own
    return records


def costs(records: list[GameRecord], rng: random.Random) -> Iterator[tuple[str, float]]:
    """The parts of a step's work, in the order in which the trainer does them, and their CPU seconds."""
    baselines = RoleBaselines()
    uids = [str(uuid4()) for _ in records]
    launches = [
        Launch(record.key, sessions=(f"{uid}_0", f"{uid}_1")) for uid, record in zip(uids, records, strict=True)
    ]
    # games are over in any order, and leave their rows one player after the other
    by_game = [[*of_game] for _, of_game in groupby(Rows(records, launches).keys, lambda key: key.split("_")[0])]
    rng.shuffle(by_game)
    batch = Batch([key for of_game in by_game for key in of_game])
    mask = torch.ones(len(batch), TOKENS)
    collect_less()  # as the trainer does when it starts

    timer = Timer()
    rows = Rows(records, launches)
    yield "join with turns", timer.lap()
    rows.check_complete(batch.keys)
    yield "check", timer.lap()
    rows.leave_out(Filters(), baselines)
    yield "filters", timer.lap()
    batch.reorder(rows.places(batch.keys).argsort().tolist())
    yield "order", timer.lap()
    facts = rows.facts(batch, baselines, 1.0, 1.0)
    yield "facts", timer.lap()
    advantages, _ = rae_advantages(facts.outcomes, facts.baselines, facts.turns_remaining, mask, 1.0, facts.scale)
    yield "advantages", timer.lap()
    with mock.patch("recipe.spiral.training.rows.tq") as queue:
        fields = {"advantages": advantages, "response_mask": mask}
        queue.kv_batch_get.return_value.to_padded_tensor.return_value = fields
        rows.note_training(batch, baselines)
    yield "advantages into turns", timer.lap()
    baselines.update(records)
    yield "baselines", timer.lap()
    training_metrics(records, [])
    reasoning_metrics(records, 4)
    yield "metrics", timer.lap()


class Batch:
    """What of verl's batch of keys the order and the filters use."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.partition_id = "train"

    def __len__(self) -> int:
        return len(self.keys)

    def reorder(self, indexes: list[int]) -> None:
        self.keys = [self.keys[index] for index in indexes]

    def select_keys(self, keys: list[str]) -> Any:
        return Batch(keys)


class Timer:
    """CPU seconds since the last lap."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        before, self._last = self._last, time.process_time()
        return self._last - before


if __name__ == "__main__":
    sys.exit(main())
