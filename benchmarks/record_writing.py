"""How long a step waits for its records: games are made, not played.

    python benchmarks/record_writing.py [--games 200] [--turns 10] [--tokens 1000] [--step 60]

A step of so many seconds is the trainer's thread at Python's work for a tenth of it, and asleep, as it waits for the
engine and its workers. It is measured alone, and while the games of the step before are written beside it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from recipe.spiral.players.records import GameRecord, Tokens, Turn
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.record_writer import RecordWriter

#: Seconds of Python's work between two pauses, and the share of a step that is such work.
WORK, BUSY = 0.01, 0.1


def made(games: int, turns: int, tokens: int) -> list[GameRecord]:
    draw = random.Random(0)

    def turn(number: int) -> Turn:
        ids = [draw.randrange(150_000) for _ in range(tokens)]
        text = " ".join(map(str, ids))
        log_probs = [-draw.expovariate(2.0) for _ in range(tokens)]
        return Turn(number % 2, number // 2, text[:500], text, "legal", "a", Tokens(ids[:300], ids, log_probs, (0, 0)))

    return [
        GameRecord(
            GameKey("train", 0, 1, game), "KuhnPoker", ("policy", "policy"), (0, 1), list(map(turn, range(turns)))
        )
        for game in range(games)
    ]


def step(seconds: float) -> float:
    """How long a step takes that should take so long."""
    begin, rounds = time.perf_counter(), round(seconds * BUSY / WORK)
    for _ in range(rounds):
        count = 0
        for number in range(_loops):
            count += number
        time.sleep(WORK * (1 / BUSY - 1))
    return time.perf_counter() - begin


def loops_of(seconds: float) -> int:
    begin, count = time.perf_counter(), 0
    for number in range(1_000_000):
        count += number
    return round(1_000_000 * seconds / (time.perf_counter() - begin))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("games", 200), ("turns", 10), ("tokens", 1000), ("step", 60)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    _loops = loops_of(WORK)
    records = made(given.games, given.turns, given.tokens)
    millions = given.games * given.turns * given.tokens / 1e6
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordWriter(Path(folder))
        begin = time.perf_counter()
        file = writer.write("train", 1, records)
        alone = time.perf_counter() - begin
        print(f"{millions:g} million response tokens: written in {alone:.1f} s, {file.stat().st_size / 1e6:.0f} MB")
        before = step(given.step)
        begin = time.perf_counter()
        writer.write_beside("train", 2, records)
        after = step(given.step)
        writer.wait()
        total = time.perf_counter() - begin
        print(f"a step: {before:.2f} s alone, {after:.2f} s beside the write; with what is left of it {total:.2f} s")
        print(f"the step waits for {100 * (total / before - 1):.1f} % of itself")
