"""Log-probabilities of whole answers to many prompts: nothing is sampled, and every common beginning is computed once.

Prompts with their answers go through the model as trees of tokens (``forest``), a tree a pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .forest import Scored, Tree

#: A tree gets no further prompt beyond this many tokens, or the model's width if that is more: attention is computed to
#: all of them, which costs a wide model little, and each pass gathers its weights.
TREE_TOKENS = 512


class Question(NamedTuple):
    """A prompt and the answers to it, as token ids; an answer is without the token that ends it."""

    prompt_ids: Sequence[int]
    answers: Sequence[Sequence[int]]


#: By (question, answer), both counted from 0, the log-probability of the answer followed by any end token.
Scores = dict[tuple[int, int], float]


class Batch(NamedTuple):
    """Questions that go through the model at a time; ``answers`` are the (question, answer) of the tree's sequences."""

    tree: Tree
    answers: list[tuple[int, int]]


def batches(model: Any, questions: Sequence[Question], ends: Sequence[int], max_tokens: int) -> list[Batch]:
    """Put questions for a model into batches. The same questions always make the same batches.

    ``ends`` are the tokens that end a response. An answer that is longer than ``max_tokens``, with its end token, is
    left out.
    """
    most = max(TREE_TOKENS, model.config.get_text_config().hidden_size)
    made: list[Batch] = []
    for number, (prompt_ids, answers) in sorted(enumerate(questions), key=lambda numbered: tuple(numbered[1][0])):
        possible = [(place, answer) for place, answer in enumerate(answers) if len(answer) < max_tokens]
        if possible and (not made or len(made[-1].tree.tokens) >= most):
            made.append(Batch(Tree(), []))
        for place, answer in possible:
            for end in ends:
                made[-1].tree.add(Scored(list(prompt_ids), [*answer, end]))
                made[-1].answers.append((number, place))
    return made


def log_probs(model: Callable[..., Any], batch: Batch, temperature: float, device: Any) -> Scores:
    """The scores of a batch's answers, by one pass of a causal language model of transformers within
    ``tree_attention``. The temperature is above 0."""
    import torch

    tree = batch.tree
    nodes, tokens = torch.tensor(tree.targets, device=device).T
    # Only the logits that are asked for, each once: with a real vocabulary a row of float32 takes half a megabyte.
    places, which = nodes.unique(return_inverse=True)
    logits = model(
        input_ids=torch.tensor([tree.tokens], device=device),
        position_ids=torch.tensor([tree.positions], device=device),
        attention_mask=torch.from_numpy(tree.sees).to(device)[None, None],
        use_cache=False,
        logits_to_keep=places,
    ).logits[0]
    log_p = (logits.float() / temperature).log_softmax(dim=-1)[which, tokens].double().cpu().numpy()
    scores: Scores = {}
    for answer, value in zip(batch.answers, np.bincount(tree.owners, weights=log_p), strict=True):
        scores[answer] = float(np.logaddexp(scores.get(answer, -math.inf), value))
    return scores


def in_order(questions: Sequence[Question], scores: Mapping[tuple[int, int], float]) -> list[list[float]]:
    """The scores of each question's answers; -inf for an answer that is too long."""
    return [[scores.get((i, j), -math.inf) for j in range(len(asked.answers))] for i, asked in enumerate(questions)]


@contextmanager
def tree_attention(model: Any) -> Iterator[None]:
    """Within it a model takes any mask, by torch's own attention, whichever kernel it has otherwise."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = before
