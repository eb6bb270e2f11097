"""Responses by transformers: the distribution is the model's, and the seed decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.play.sampling import Transformers
from recipe.spiral.players.player import Generation
from recipe.spiral.players.prompts import encoder
from recipe.spiral.rollouts.end_tokens import end_tokens

USUAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 16}


@pytest.fixture(scope="module")
def folder() -> Path:
    return embedded("tiny", ["TicTacToe", "KuhnPoker"])


@pytest.fixture(scope="module")
def model(folder: Path) -> Transformers:
    return Transformers(folder, None, end_tokens(folder), "tiny")


@pytest.fixture(scope="module")
def prompt(folder: Path) -> list[int]:
    from transformers import AutoTokenizer

    encode = encoder(AutoTokenizer.from_pretrained(folder), "chat", "state")
    return encode(make("TicTacToe", 0).observation(0), ())


def answer(model: Transformers, prompt: list[int], seed: int = 0, **settings: Any) -> Generation:
    return asyncio.run(model.generate(prompt, {**USUAL, "seed": seed, **settings}))


def log_probs(model: Transformers, prompt: list[int], response: list[int], temperature: float = 1.0) -> list[float]:
    """By one pass over all of it."""
    import torch

    with torch.inference_mode():
        logits = model._model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].float()
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    return [float(row[token]) for row, token in zip(log_p, response, strict=True)]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_log_probabilities_are_those_of_the_distribution(
    model: Transformers, prompt: list[int], temperature: float
) -> None:
    tokens, _ = answer(model, prompt, 3, temperature=temperature)
    assert tokens.log_probs == pytest.approx(log_probs(model, prompt, tokens.response_ids, temperature), abs=1e-3)
    assert tokens.answered_by == "tiny"


def test_the_seed_decides_and_nothing_else(model: Transformers, prompt: list[int]) -> None:
    import torch

    state = torch.get_rng_state()
    first = answer(model, prompt, 11)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert answer(model, prompt, 11) == first
    assert len({tuple(answer(model, prompt, seed).tokens.response_ids) for seed in range(20)}) > 3


def test_a_response_ends_at_an_end_token_or_at_the_limit(folder: Path, model: Transformers, prompt: list[int]) -> None:
    whole = answer(model, prompt)
    assert whole.tokens.response_ids[-1] in end_tokens(folder)
    assert not whole.truncated
    cut = answer(model, prompt, max_tokens=2)
    assert cut.tokens.response_ids == whole.tokens.response_ids[:2]
    assert cut.truncated
