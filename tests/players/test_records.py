"""Keys and their seeds. Records: a file is whole or absent, what is damaged is
seen, and a folder can be cut back.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from recipe.spiral.lab.record_folder import RecordFolder, Torn, parse
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey, derive_seed
from tests.made import record, turn, unpacked


@pytest.mark.parametrize(
    ("rewards", "results"),
    [
        ((1.0, -1.0), ("win", "loss")),
        ((-0.5, 0.5), ("loss", "win")),
        ((0.0, 0.0), ("draw", "draw")),
        ((-1.5, 0.5), ("loss", "win")),
        ((-1.0, -1.0), ("loss", "loss")),
    ],
)
@pytest.mark.parametrize("baselines", [(None, None), (0.3, -0.7)])
def test_results_are_those_of_raw_rewards(
    rewards: tuple[float, float], results: tuple[str, str], baselines: tuple[float | None, float | None]
) -> None:
    """A draw is a draw whatever the baselines are."""
    game = record(rewards=rewards, baselines=baselines)
    assert (game.result(0), game.result(1)) == results


def test_a_line_shows_whether_it_is_as_it_was_written(tmp_path: Path) -> None:
    written = record(0, turns=[turn(0, 0, response='{"digest":"0123456789abcdef"} \u2028 \\boxed{[4]}')])
    (line,) = unpacked(RecordFolder(tmp_path).write("train", 1, [written])).split(b"\n")[:-1]
    assert parse(line) == (written, True)
    assert parse(json.dumps(json.loads(line)).encode()) == (written, True), "spaces do not matter"
    assert parse(line.replace(b"4]", b"5]"))[1] is False
    assert parse(written.to_json().encode()) == (written, False), "its digest is gone"
    assert msgspec.json.decode(line, type=GameRecord) == written


def test_a_file_is_whole_or_what_it_was(tmp_path: Path) -> None:
    """A write that ends in the middle leaves the earlier file as it was, and nothing that is read as games."""
    folder = RecordFolder(tmp_path)
    folder.write("train", 1, [record(0), record(1)])
    bad = record(3)
    bad.turns = [turn(0, 0, observation=object())]
    for step in (1, 2):
        with pytest.raises(TypeError):
            folder.write("train", step, [record(2), bad])
    assert [game.key.index for game in folder.read("train")] == [0, 1]
    assert folder.steps("train") == [1]


def test_cutting_back_removes_later_steps_of_both_splits_only(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    for step in (1, 2, 9, 10, 11):
        folder.write("train", step, [record(step)])
    for step in (0, 10, 20):
        folder.write("val", step, [record(step)])
    folder.write("human", 11, [record(0)])  # numbered as they were played: python -m recipe.spiral.play --save RUN_DIR
    (tmp_path / "notes.txt").write_text("mine")
    removed = folder.cut_back(10)
    assert sorted(file.name for file in removed) == ["train_step_000011.jsonl.gz", "val_step_000020.jsonl.gz"]
    assert folder.steps("train") == [1, 2, 9, 10]
    assert folder.steps("val") == [0, 10]
    assert folder.steps("human") == [11]
    assert (tmp_path / "notes.txt").exists()
    assert folder.cut_back(10) == []


KEY = GameKey("train", 7, 3, 12)


def test_seeds_are_the_same_in_every_process_and_version() -> None:
    """Pinned: a run recorded today must be the same run when it is repeated."""
    assert derive_seed("a", 1) == 6431086039603022688
    assert KEY.seed("game") == 1424814250368861213
    assert KEY.seed("sampling", 1, 0) == 8269242944996751309


def test_every_part_of_a_key_matters() -> None:
    keys = [KEY, GameKey("val", 7, 3, 12), GameKey("train", 8, 3, 12), GameKey("train", 7, 4, 12)]
    keys += [GameKey("train", 7, 3, 13), KEY.next_retry(), GameKey("train", 7, 31, 2)]
    seeds = [
        key.seed(purpose, *parts) for key in keys for purpose in ("game", "sampling") for parts in ((), (0,), (1,))
    ]
    assert len(set(seeds)) == len(seeds)


def test_keys_sort_as_a_run_counts_its_games() -> None:
    """By number, not by digits: step 9 comes before step 10, index 2 before 11, a retry behind its game."""
    order = [(1, 5, 0), (9, 0, 0), (10, 2, 0), (10, 2, 1), (10, 11, 0)]
    keys = [GameKey("train", 7, *parts) for parts in order]
    assert sorted(random.Random(0).sample(keys, len(keys))) == keys


def test_a_retry_is_another_game_under_the_same_first_name() -> None:
    again = KEY.next_retry().next_retry()
    assert again.retry == 2
    assert again.first_try() == KEY
    assert str(again) == "train-7-3-12-2"
    assert GameKey(**again.to_dict()) == again


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
