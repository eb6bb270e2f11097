"""A run's records, as others read them: damaged and torn, and steps that were written anew."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder, Torn
from recipe.spiral.lab.report.game_index import RunGames
from recipe.spiral.players.records import GameRecord
from tests.made import record, repack, turn, unpacked


def test_a_line_that_is_torn_is_passed_over_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    file = folder.write("train", 1, [record(index) for index in range(3)])
    lines = unpacked(file).splitlines(keepends=True)
    repack(file, lines[0] + lines[1][:50] + b"\xff\n" + lines[2] + b'{"key": {}')
    broken: list[Exception] = []
    assert [game.key.index for game in folder.read_step("train", 1, broken.append)] == [0, 2]
    assert len(broken) == 2
    with pytest.raises(ValueError):
        list(folder.read_step("train", 1))


def test_a_stamp_changes_with_a_steps_games(tmp_path: Path) -> None:
    folder = RunGames(tmp_path)
    folder.write("train", 1, [record(0)])
    first = folder.stamps("train")[1]
    assert folder.stamps("train")[1] == first
    folder.write("train", 1, [replace(record(0), reason="anew")])
    assert folder.stamps("train")[1] != first


def many(number: int) -> list[GameRecord]:
    return [record(index, turns=[turn(0, 0, response=f"\\u2028 {index}")]) for index in range(number)]


def test_any_gzip_reads_a_step(tmp_path: Path) -> None:
    file = RecordFolder(tmp_path).write("train", 1, many(30))
    told = subprocess.run(["gzip", "-dc", str(file)], capture_output=True, check=True).stdout
    assert told == unpacked(file)
    assert [GameRecord.from_dict(json.loads(line)) for line in told.decode().split("\n")[:-1]] == many(30)
    subprocess.run(["gzip", "-t", str(file)], check=True)


def test_no_step_is_there_twice(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    for step in (4, 1_000_004):
        folder.file("train", step).touch()
        folder.file("train", step).with_name(f"train_step_000{step:06d}.jsonl.gz").touch()  # a copy, by hand
    assert folder.steps("train") == [4, 1_000_004]


def test_a_step_that_another_gzip_packed_belongs_to_the_run(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    for step in range(1, 6):
        folder.write("train", step, many(step))
    repack(folder.file("train", 4), unpacked(folder.file("train", 4)))
    assert folder.steps("train") == [1, 2, 3, 4, 5] and folder.steps("train", after=3) == [4, 5]
    assert [game.key.index for game in folder.read("train")] == [i for step in range(1, 6) for i in range(step)]
    assert [game.key.index for game in folder.read("train", 2, 3)] == [0, 1, 0, 1, 2]
    assert folder.count("train") == 15 and folder.count("train", [1, 4]) == 5
    folder.write("train", 2, many(7))
    assert folder.count("train", [2]) == 7 and len(list(tmp_path.iterdir())) == 5
    assert len(folder.cut_back(1)) == 4 and folder.steps("train") == [1]


def test_steps_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    for step in (1, 2):
        folder.write("train", step, many(1))
    folder.file("train", 2).write_bytes(b"no gzip")
    games = folder.read("train")
    assert next(games).key.index == 0
    with pytest.raises(Torn, match=r"train_step_000002\.jsonl\.gz: is cut short or damaged"):
        next(games)


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
