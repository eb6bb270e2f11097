"""The model of long answers ends them anywhere, and with an action."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import long_answers
from recipe.spiral.games import make
from recipe.spiral.players.prompts import extract_answer
from recipe.spiral.rollouts.end_tokens import end_tokens

TOKENS = 32


def test_every_token_that_ends_an_answer_is_an_action_and_none_is_likelier(tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    long_answers.make(tmp_path, TOKENS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ends = sorted(end_tokens(tmp_path) - {tokenizer.eos_token_id})
    answers = [
        extract_answer(tokenizer.decode([7, token, end], skip_special_tokens=True)) for token in (9, 11) for end in ends
    ]
    assert {*answers} == {*make(long_answers.GAME, 0).legal_actions()} == {*long_answers.ACTIONS}
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    prompt = tokenizer("Pig. [roll] or [hold]?", return_tensors="pt").input_ids
    with torch.no_grad():
        shares = model(prompt).logits[0, -1].softmax(-1)
    assert shares[ends].sum().item() == pytest.approx(1 / TOKENS, rel=0.2)


@pytest.mark.parametrize("tokens", [1, 1000])
def test_a_mean_that_the_vocabulary_does_not_allow_is_refused(tmp_path: Path, tokens: int) -> None:
    with pytest.raises(ValueError, match=rf"^answers of {tokens} tokens in the mean: must be 2 to 128$"):
        long_answers.make(tmp_path / "model", tokens)
    assert not (tmp_path / "model").exists()
