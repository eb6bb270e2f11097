"""Scores of answers in trees of tokens: against one plain pass of the model for each answer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from recipe.spiral.lab.models import answer_scores as answers  # noqa: E402
from recipe.spiral.lab.models.answer_scores import Question, in_order, score_answers  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other over so small a model take several times as long, where others compute, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def models() -> list[Any]:
    torch.manual_seed(0)
    return [Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)).eval(), LlamaForCausalLM(LlamaConfig(**SIZES)).eval()]


def questions(number: int = 60) -> list[Question]:
    """Prompts of several lengths that begin alike or do not, one of them twice; an answer may be empty."""
    draw = random.Random(3)
    made = []
    for _ in range(number):
        prompt = [1, 2, 3, *(draw.randrange(4, 7) for _ in range(draw.randrange(1, 9)))]
        first = draw.randrange(8, 12)
        made.append(Question(prompt, [[first, *draw.choices(range(8, 30), k=k)] for k in range(draw.randrange(1, 5))]))
    alone = [Question([20], [[8], [8, 9], []]), Question([21, 22], [[]])]  # no beginning in common; nothing but the end
    return [*made, made[0], *alone]


def scored(
    model: Any, asked: list[Question], ends: list[int], temperature: float, most: int = 100
) -> list[list[float]]:
    return in_order(asked, score_answers(model, asked, ends, temperature, most, "cpu"))


def plainly(model: Any, prompt: list[int], answer: list[int], ends: list[int], temperature: float) -> float:
    with torch.no_grad():
        log_p = torch.log_softmax(model(torch.tensor([[*prompt, *answer]])).logits[0].double() / temperature, dim=-1)
    said = sum(float(log_p[len(prompt) - 1 + place, token]) for place, token in enumerate(answer))
    return said + float(torch.logsumexp(log_p[-1, ends], dim=-1))


@pytest.mark.parametrize("tokens", [512, 30, 1])
def test_scores_are_those_of_plain_passes(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "TREE_TOKENS", tokens)
    asked, ends = questions(), [0, 7]
    for model in models():
        for question, found in zip(asked, scored(model, asked, ends, 0.7), strict=True):
            expected = [plainly(model, list(question.prompt_ids), list(a), ends, 0.7) for a in question.answers]
            assert found == pytest.approx(expected, abs=1e-5)


def test_an_answer_that_does_not_fit_has_no_probability() -> None:
    model = models()[0]
    ((short, long),) = scored(model, [Question([1, 2], [[8, 9], [8, 9, 10]])], [0], 1.0, most=3)
    assert short > -math.inf and long == -math.inf
    assert scored(model, [Question([1, 2], [[8, 9, 10]])], [0], 1.0, most=3) == [[-math.inf]]
