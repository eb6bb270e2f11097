"""Records: what goes into a file comes out of it, a file is whole or absent, a folder can be cut back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.games import make
from recipe.spiral.lab.record_folder import RecordFolder, parse
from recipe.spiral.players.records import GameRecord, Tokens, Turn
from recipe.spiral.players.seeds import GameKey
from tests.made import Scripted, boxed, record, run_match, turn, unpacked

_text = st.text(max_size=20)
_number = st.floats(-2, 2, allow_nan=False)
_keys = st.builds(
    GameKey,
    st.sampled_from(["train", "val"]),
    st.integers(0, 2**40),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 3),
)
_tokens = st.builds(
    Tokens,
    st.lists(st.integers(0, 200_000), max_size=4),
    st.lists(st.integers(0, 200_000), min_size=1, max_size=4),
    st.none() | st.lists(_number, max_size=4),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
_usages = st.dictionaries(st.sampled_from(["prompt_tokens", "cost"]), st.integers(0, 9999))
_turns = st.builds(
    Turn,
    st.integers(0, 1),
    st.integers(0, 9),
    _text,
    _text,
    st.sampled_from(["legal", "no_answer", "unreadable", "illegal", "truncated"]),
    st.none() | _text,
    st.none() | _tokens,
    st.booleans(),
    st.none() | _number,
    usage=st.none() | _usages,
)
_records = st.builds(
    GameRecord,
    _keys,
    _text,
    st.tuples(_text, _text),
    st.sampled_from([(0, 1), (0,), (1,)]),
    st.lists(_turns, max_size=3),
    st.sampled_from(["rules", "illegal", "turn_cap", "prompt_too_long"]),
    st.tuples(_number, _number),
    st.tuples(st.none() | _number, st.none() | _number),
    st.none() | st.just("void"),
)


@given(_records)
def test_a_record_survives_json(game: GameRecord) -> None:
    line = game.to_json()
    assert "\n" not in line
    assert GameRecord.from_dict(json.loads(line)) == game


def test_a_played_game_can_be_replayed_from_its_line() -> None:
    moves = ["[0]", "[3]", "[1]", "[4]", "[2]"]
    played = run_match(make("TicTacToe", 0), [Scripted(*map(boxed, moves[player::2])) for player in (0, 1)])
    kept = GameRecord.from_dict(json.loads(played.to_json()))
    game = make("TicTacToe", kept.key.seed("game"))
    for move in kept.turns:
        assert (game.current_player, game.observation(move.player)) == (move.player, move.observation)
        game.step(str(move.action))
    assert game.rewards() == kept.rewards


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
    assert GameRecord.from_dict(json.loads(line.decode())) == written


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
