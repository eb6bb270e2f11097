"""A run's records, as others read them: damaged, torn, and after a kill."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder, Torn
from recipe.spiral.players.records import GameRecord
from tests.made import record, turn


def many(number: int) -> list[GameRecord]:
    return [record(index, turns=[turn(0, 0, response=f"\\u2028 {index}")]) for index in range(number)]


@pytest.mark.parametrize("kept", [0, 5, 19, 20, 25, 0.3, 0.7, -9, -8, -1])
def test_of_a_file_that_is_cut_short_the_whole_lines_are_read(tmp_path: Path, kept: float) -> None:
    folder = RecordFolder(tmp_path)
    file = folder.write("train", 1, many(2_000))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    broken: list[Exception] = []
    read = [game.key.index for game in folder.read_step("train", 1, broken.append)]
    assert read == list(range(len(read))) and len(read) >= (0.2 * 2_000 if kept in (0.3, 0.7, -9, -8, -1) else 0)
    assert broken and isinstance(broken[-1], Torn)
    with pytest.raises(ValueError):
        list(folder.read_step("train", 1))


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    file = folder.write("train", 1, many(50))
    whole = file.read_bytes()
    for place in range(20, len(whole), 97):
        flipped = bytearray(whole)
        flipped[place] ^= 16
        file.write_bytes(flipped)
        broken: list[Exception] = []
        read = list(folder.read_step("train", 1, broken.append))
        assert broken or read == many(50)


def test_a_kill_while_a_step_is_written_loses_no_other(tmp_path: Path) -> None:
    """Killed at any moment, the folder has whole steps, one after another, and a resumed run goes on with it."""
    code = (
        "import sys; from recipe.spiral.lab.record_folder import RecordFolder\n"
        "from recipe.spiral.players.records import GameRecord; from recipe.spiral.players.seeds import GameKey\n"
        "games = [GameRecord(GameKey('train', 7, 1, index), 'Nim', ('a', 'b'), (0, 1)) for index in range(300)]\n"
        "folder = RecordFolder(sys.argv[1])\n"
        "for step in range(1, 10**6): folder.write('train', step, games); print(step, flush=True)"
    )
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        written = [int(writer.stdout.readline()) for _ in range(5)][-1]
        time.sleep(random.random() / 10)
        writer.kill()
    folder = RecordFolder(tmp_path)
    steps = folder.steps("train")
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= written
    assert [game.key.index for game in folder.read("train")] == list(range(300)) * len(steps)
    folder.cut_back(written)
    assert folder.steps("train")[-1] == written
