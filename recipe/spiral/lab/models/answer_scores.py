"""Log-probabilities of whole answers to many prompts: nothing is sampled, and every common beginning is computed once.

A batch of prompts goes through the model in three passes, and each reads the keys and values of those before: the
beginnings that prompts have in common, as trees of tokens (``forest``); the rest of each prompt; and its answers, as a
tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .forest import Scored, Tree

if TYPE_CHECKING:
    import torch

#: A tree of beginnings gets no further one beyond this many tokens: attention is computed to all of them.
TREE_TOKENS = 256
#: The most tokens of a batch's prompts and answers, common ones counted for each. More are not faster on a CPU.
TOKENS_AT_ONCE = 32768
#: The most logits that these tokens could have, for the sake of memory: a large vocabulary makes smaller batches.
LOGITS_AT_ONCE = 2**30
#: An answer is negligible if its first token's probability is below this part of the likeliest answer's first token's.
NEGLIGIBLE = 1e-6


class Question(NamedTuple):
    """A prompt and the answers to it, as token ids; an answer is without the token that ends it."""

    prompt_ids: Sequence[int]
    answers: Sequence[Sequence[int]]


#: By (question, answer), both counted from 0, the log-probability of the answer followed by any end token.
Scores = dict[tuple[int, int], float]
#: An answer and an end token.
Response = tuple[int, ...]


class Entry(NamedTuple):
    """A question by its number, and the possible responses to it, each with the number of its answer."""

    number: int
    prompt: list[int]
    responses: tuple[Response, ...]
    answers: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.prompt) + sum(map(len, self.responses))


@dataclass(frozen=True)
class Batch:
    """Questions that go through the model at a time.

    Attributes:
        trees: the first ``common`` tokens of every prompt.
        ends: for each question, the tree and the node with which its beginning ends.
    """

    entries: list[Entry]
    common: int
    trees: list[Tree]
    ends: list[tuple[int, int]]


def batches(model: Any, questions: Sequence[Question], ends: Sequence[int], max_tokens: int) -> list[Batch]:
    """Put questions for a model into batches. The same questions always make the same batches.

    ``ends`` are the tokens that end a response. An answer that is longer than ``max_tokens``, with its end token, is
    left out.
    """
    entries = []
    for number, (prompt_ids, answers) in enumerate(questions):
        possible = [place for place, answer in enumerate(answers) if len(answer) < max_tokens for _ in ends]
        responses = tuple((*answer, end) for answer in answers if len(answer) < max_tokens for end in ends)
        if possible:
            entries.append(Entry(number, list(prompt_ids), responses, tuple(possible)))
    # Rows of a batch are padded to the longest, so questions of about the same size are together.
    entries.sort(key=lambda entry: (len(entry.responses), len(entry.prompt), entry.prompt))
    at_once = min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // model.config.get_text_config().vocab_size)
    made: list[list[Entry]] = []
    for entry in entries:
        if not made or (len(made[-1]) + 1) * entry.tokens > at_once:
            made.append([])
        made[-1].append(entry)
    return [_batch(sorted(some, key=lambda entry: entry.prompt)) for some in made]


def _batch(entries: list[Entry]) -> Batch:
    """A batch of questions in the order of their prompts."""
    alike = [_alike(before.prompt, after.prompt) for before, after in pairwise(entries)]
    # Beyond this, no two prompts have tokens in common. A prompt's last token is not in the trees: it has a target.
    common = min([max(alike, default=0), *(len(entry.prompt) - 1 for entry in entries)])
    rows: list[list[Scored]] = []
    tokens = 0
    ends = []
    for entry, shared in zip(entries, [0, *alike], strict=True):
        tokens += common - min(common, shared)
        if not rows or tokens > TREE_TOKENS:
            rows.append([])
            tokens = common
        rows[-1].append(Scored(entry.prompt[:common], [0]))
        ends.append((len(rows) - 1, len(rows[-1]) - 1))
    trees = [Tree.of(row) for row in rows]
    return Batch(entries, common, trees, [(row, trees[row].targets[place][0]) for row, place in ends])


class _Rows:
    """Trees as rows of a tensor, each at the end of its row; they come after tokens that the model has read.

    Args:
        trees: one a row.
        starts: the position of each tree's first token.
        read: which of the tokens that were read each tree attends to. [rows, tokens]
    """

    def __init__(self, trees: Sequence[Tree], starts: Sequence[int], read: npt.NDArray[np.bool_]) -> None:
        # Where no tree has a token, padding goes through the model: every rank has to make all passes.
        self.width = max(1, *(len(tree.tokens) for tree in trees))
        self._begins = [self.width - len(tree.tokens) for tree in trees]
        self._ids, self._positions = np.zeros((2, len(trees), self.width), dtype=np.int64)
        own = np.zeros((len(trees), self.width, self.width), dtype=bool)
        own[:, np.arange(self.width), np.arange(self.width)] = True  # padding sees itself: a row that sees none is NaN
        for row, (tree, begin, start) in enumerate(zip(trees, self._begins, starts, strict=True)):
            self._ids[row, begin:] = tree.tokens
            self._positions[row, begin:] = np.array(tree.positions, dtype=np.int64) + start
            own[row, begin:, begin:] = tree.sees
        before = np.broadcast_to(read[:, None], (len(trees), self.width, read.shape[1]))
        self._sees = np.concatenate([before, own], axis=2)
        #: ``read``, with these rows' own tokens.
        self.read = np.concatenate([read, np.arange(self.width) >= np.array(self._begins)[:, None]], axis=1)

    def place(self, row: int, node: int) -> int:
        """Where a node of a row's tree is when all rows are put in a line."""
        return row * self.width + self._begins[row] + node

    def logits(self, model: Callable[..., Any], cache: Any, device: Any, last: int) -> torch.Tensor:
        """The logits of each row's last tokens; all keys and values join the cache. [rows * last, vocabulary]"""
        import torch

        result: torch.Tensor = model(
            input_ids=torch.from_numpy(self._ids).to(device),
            position_ids=torch.from_numpy(self._positions).to(device),
            attention_mask=torch.from_numpy(self._sees)[:, None].to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=last,
        ).logits
        return result.flatten(0, 1)


def log_probs(model: Callable[..., Any], batch: Batch, temperature: float, device: Any) -> Scores:
    """The scores of a batch's answers, without those that are negligible. The model, a causal language model of
    transformers within ``tree_attention``, makes three passes. The temperature is above 0."""
    from transformers import DynamicCache

    entries, common = batch.entries, batch.common
    beginnings, cache = DynamicCache(), DynamicCache()
    rows = _Rows(batch.trees, [0] * len(batch.trees), np.zeros((len(batch.trees), 0), dtype=bool))
    rows.logits(model, beginnings, device, 1)
    where = np.array(
        [[rows.place(row, node) for node in batch.trees[row].path(end)] for row, end in batch.ends], dtype=np.int64
    )
    for number, layer in enumerate(beginnings.layers):
        cache.update(_taken(layer.keys, where), _taken(layer.values, where), number)

    rests = [Tree.chain(entry.prompt[common:]) for entry in entries]
    rows = _Rows(rests, [common] * len(entries), np.ones((len(entries), common), dtype=bool))
    logits = rows.logits(model, cache, device, 1)
    targets = [[(row, response[0]) for response in entry.responses] for row, entry in enumerate(entries)]
    first = _log_p(logits, targets, temperature)
    kept = [np.flatnonzero(log_p >= math.log(NEGLIGIBLE) + log_p.max()) for log_p in first]

    answers = [tuple(entry.responses[i] for i in places) for entry, places in zip(entries, kept, strict=True)]
    trees = list(map(_tree, answers))
    rows = _Rows(trees, [len(entry.prompt) for entry in entries], rows.read)
    logits = rows.logits(model, cache, device, rows.width)
    targets = [[(rows.place(row, node), token) for node, token in tree.targets] for row, tree in enumerate(trees)]
    later = _log_p(logits, targets, temperature)
    scores: Scores = {}
    for entry, tree, places, start, log_p in zip(entries, trees, kept, first, later, strict=True):
        sums = start[places] + np.bincount(tree.owners, weights=log_p, minlength=len(places))
        for place, value in zip(places, sums, strict=True):
            answer = entry.number, entry.answers[place]
            scores[answer] = float(np.logaddexp(scores.get(answer, -math.inf), value))
    return scores


def _alike(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens with which both begin."""
    return sum(1 for _ in takewhile(bool, map(eq, first, second)))


@lru_cache(maxsize=65536)
def _tree(responses: tuple[Response, ...]) -> Tree:
    """Responses as a tree. What is scored in it is what follows their first tokens."""
    return Tree.of([Scored([first], rest) for first, *rest in responses])


def _taken(states: torch.Tensor, where: npt.NDArray[np.int64]) -> torch.Tensor:
    """Keys or values, [rows, heads, tokens, size], at ``where`` in all rows, [questions, places]: a row a question."""
    import torch

    return states.transpose(1, 2).flatten(0, 1)[torch.from_numpy(where).to(states.device)].transpose(1, 2)


def _log_p(
    logits: torch.Tensor, targets: Sequence[Sequence[tuple[int, int]]], temperature: float
) -> list[npt.NDArray[np.float64]]:
    """The log-probabilities of (row, token) in several groups. logits: [rows, vocabulary]."""
    import torch

    rows, tokens = torch.tensor([target for group in targets for target in group] or [(0, 0)]).T.to(logits.device)
    # Only the rows that are asked for, each once: with a real vocabulary a row of float32 takes half a megabyte.
    places, which = rows.unique(return_inverse=True)
    log_p = (logits[places].float() / temperature).log_softmax(dim=-1)[which, tokens].double().cpu().numpy()
    return np.split(log_p, np.cumsum([len(group) for group in targets]))[:-1]


def in_order(questions: Sequence[Question], scores: Mapping[tuple[int, int], float]) -> list[list[float]]:
    """The scores of each question's answers; -inf for an answer that is too long, or negligible."""
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
