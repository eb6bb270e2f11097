"""Log-probabilities of whole answers to many prompts: nothing is sampled, and every common beginning is computed once.

Prompts about one game begin alike, and so do the answers to one prompt. Neighbouring prompts with all their answers are
one tree of tokens (``forest``), and several trees go through the model at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .forest import Scored, Tree

#: A tree gets no further prompt beyond this many tokens: attention is computed to all of them, and then costs more than
#: common beginnings save.
TREE_TOKENS = 256
#: The most tokens that go through the model at a time. More are not faster on a CPU.
TOKENS_AT_ONCE = 4096


class Question(NamedTuple):
    """A prompt and the answers to it, as token ids; an answer is without the token that ends it."""

    prompt_ids: Sequence[int]
    answers: Sequence[Sequence[int]]


#: By (question, answer), both counted from 0, the log-probability of the answer followed by any end token.
Scores = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Batch:
    """What goes through the model at a time.

    Attributes:
        trees: of prompts, each followed by an answer and an end token.
        owners: for each tree, and each of its sequences, the question and the answer.
    """

    trees: list[Tree]
    owners: list[list[tuple[int, int]]]


def batches(questions: Sequence[Question], ends: Sequence[int], max_tokens: int) -> list[Batch]:
    """Put questions into batches. The same questions always make the same batches.

    Args:
        ends: the tokens that end a response.
        max_tokens: the longest response. An answer that is longer, with its end token, is left out.
    """
    trees: list[tuple[Tree, list[tuple[int, int]]]] = []
    sequences: list[Scored] = []
    owners: list[tuple[int, int]] = []
    tokens, before = 0, [-1]

    def finish() -> None:
        if sequences:
            trees.append((Tree.of(sequences), owners))

    for number, (prompt_ids, answers) in sorted(enumerate(questions), key=lambda entry: list(entry[1].prompt_ids)):
        prompt, length = list(prompt_ids), sum(map(len, answers))
        if tokens + len(prompt) - _alike(before, prompt) + length > TREE_TOKENS:
            finish()
            sequences, owners, tokens, before = [], [], 0, [-1]
        tokens += len(prompt) - _alike(before, prompt) + length
        possible = [(place, answer) for place, answer in enumerate(answers) if len(answer) < max_tokens]
        sequences += [Scored(prompt, [*answer, end]) for _, answer in possible for end in ends]
        owners += [(number, place) for place, _ in possible for _ in ends]
        before = prompt
    finish()
    made: list[Batch] = []
    for tree, of in sorted(trees, key=lambda entry: len(entry[0].tokens)):  # so that there is little padding
        if not made or (len(made[-1].trees) + 1) * len(tree.tokens) > TOKENS_AT_ONCE:
            made.append(Batch([], []))
        made[-1].trees.append(tree)
        made[-1].owners.append(of)
    return made


def _alike(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens with which both begin."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def log_probs(model: Callable[..., Any], batch: Batch, temperature: float, device: Any) -> Scores:
    """The scores of a batch's answers.

    Args:
        model: a causal language model of transformers, within ``tree_attention``.
        temperature: above 0.
        device: the model's.
    """
    import torch

    asked = [{node for node, _ in tree.targets} for tree in batch.trees]
    width, most = max(len(tree.tokens) for tree in batch.trees), max(map(len, asked))
    ids, positions = np.zeros((2, len(batch.trees), width), dtype=np.int64)
    sees = np.zeros((len(batch.trees), width, width), dtype=bool)
    sees[:, np.arange(width), np.arange(width)] = True  # padding sees itself: a row that sees nothing is NaN
    nodes: list[int] = []
    for row, tree in enumerate(batch.trees):
        # The nodes whose distributions are needed come last, so that no other distribution is computed.
        order = sorted(range(len(tree.tokens)), key=asked[row].__contains__)
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(width - len(order), width)
        ids[row, places], positions[row, places] = tree.tokens, tree.positions
        for place, parent in zip(places, tree.parents, strict=True):
            if parent >= 0:
                sees[row, place] |= sees[row, places[parent]]
        nodes += [row * most + int(places[node]) - (width - most) for node, _ in tree.targets]
    logits = model(
        input_ids=torch.from_numpy(ids).to(device),
        position_ids=torch.from_numpy(positions).to(device),
        attention_mask=torch.from_numpy(sees)[:, None].to(device),
        use_cache=False,
        logits_to_keep=most,
    ).logits
    used, which = torch.unique(torch.tensor(nodes), return_inverse=True)
    log_p = torch.log_softmax(logits.flatten(0, 1)[used.to(device)].float() / temperature, dim=-1)
    tokens = torch.tensor([token for tree in batch.trees for _, token in tree.targets])
    chosen = log_p[which.to(device), tokens.to(device)].double().cpu().numpy()
    scores: Scores = {}
    for tree, owners in zip(batch.trees, batch.owners, strict=True):
        sums = np.bincount(tree.owners, weights=chosen[: len(tree.owners)], minlength=len(owners))
        chosen = chosen[len(tree.owners) :]
        for owner, value in zip(owners, sums.tolist(), strict=True):
            scores[owner] = float(np.logaddexp(scores.get(owner, -math.inf), value))
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
