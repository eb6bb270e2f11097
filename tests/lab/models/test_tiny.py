"""How a tiny model is made: its texts and tokens, what it never sees, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.models import tiny
from recipe.spiral.lab.models.__main__ import main as command_line
from recipe.spiral.lab.models.read_back import hold_out, made_up, random_play
from recipe.spiral.lab.models.tiny import Spec
from recipe.spiral.lab.models.warm_start import Schedule

transformers = pytest.importorskip("transformers")

ALL = ("TicTacToe", "KuhnPoker", "KuhnPoker-5")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small model that was trained for a few steps."""
    folder = tmp_path_factory.mktemp("models") / "small"
    schedule = Schedule(steps=4, rounds=1, observations=4, questions=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "POSITION_GAMES", 300)  # to play thousands takes longer than all else here
        patch.setattr(tiny, "MADE_UP", 200)
        tiny.make_tiny(replace(Spec.of(ALL), hidden_size=32, layers=2, schedule=schedule), folder, check=False)
    return folder


@pytest.fixture(scope="module")
def tokenizer(small: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(small)


def test_the_tokenizer_writes_any_text_and_reads_it_back(tokenizer: Any) -> None:
    for text in ("Answer with [check] or [bet].", "X4 | 5 | O6\n", "déjà vu, 東京 \\boxed{[42]}  \n\n\t", ""):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    assert len(tokenizer) % 64 == 0


def test_held_out_positions_are_never_trained_on() -> None:
    for game_id in ALL:
        train, held_out = hold_out(random_play(game_id, 300, seed=0), most=50)
        assert 3 <= len(held_out) <= 50
        known = {seen.observation for seen in held_out}
        invented = made_up(game_id, 500, seed=0, without=held_out)
        assert bool(invented) == (game_id == "KuhnPoker"), "for games with few positions"
        assert not known & {seen.observation for seen in train + invented}


def test_what_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["tiny", "--games", "Nim", "--output", str(tmp_path / "new")]) == 2
    assert "Nim" in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert command_line(["tiny", "--output", str(tmp_path)]) == 2, "it is there"
