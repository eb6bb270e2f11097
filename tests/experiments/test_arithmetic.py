"""The questions of the CPU run of SPIN: none is in both files, and their answers are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import arithmetic
from recipe.spiral.spin.training_questions import load_questions


def test_the_sums_and_those_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")  # a model that is there stays
    arithmetic.make(tmp_path)
    train, held_out = (load_questions(str(tmp_path / f"{name}.jsonl"), name) for name in ("train", "test"))
    assert (len(train), len(held_out)) == (arithmetic.BELOW**2 - arithmetic.HELD_OUT, arithmetic.HELD_OUT)
    assert not {asked.text for asked in train} & {asked.text for asked in held_out}
    for asked in (*train, *held_out):
        first, second = asked.text.removeprefix("What is ").removesuffix("?").split(" + ")
        assert (int(asked.answer), asked.data_set) == (int(first) + int(second), "sums")
    assert json.loads((tmp_path / "model" / "config.json").read_text()) == {}
    arithmetic.main([str(tmp_path / "asked"), "--questions"])
    assert {file.name for file in (tmp_path / "asked").iterdir()} == {"train.jsonl", "test.jsonl"}
    assert arithmetic.sums(0) == arithmetic.sums(0) != arithmetic.sums(1)
