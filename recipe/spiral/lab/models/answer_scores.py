"""Log-probabilities of whole answers to many prompts: nothing is sampled, and every common beginning is computed once.

Prompts with their answers are written as trees of tokens. A token attends to its ancestors and has the position that it
would have in a sequence by itself. So the logits are those of the sequences one by one, for a third of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

#: A tree gets no further prompt beyond this many tokens, or the model's width if that is more: attention is computed to
#: all of them, which costs a wide model little, and each pass gathers its weights.
TREE_TOKENS = 512


class Scored(NamedTuple):
    """A prompt, a response whose tokens are scored, and the weight of the response in a loss."""

    prompt_ids: list[int]
    response_ids: list[int]
    weight: float = 1.0


class Tree:
    """Sequences merged where they begin alike. A node comes after its parent.

    Attributes:
        tokens: each node's token.
        parents: each node's parent; -1 for a first token.
        positions: each node's position in its sequences.
        targets: (the node before it, the token) for every response token of every sequence.
        weights: each target's weight.
        owners: the sequence that each target belongs to, counted from 0.
    """

    def __init__(self, sequences: Iterable[Scored] = ()) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.positions: list[int] = []
        self.targets: list[tuple[int, int]] = []
        self.weights: list[float] = []
        self.owners: list[int] = []
        self._children: dict[tuple[int, int], int] = {}
        # Answers to one observation follow one another, and share its prompt: its path is walked once.
        self._ends: dict[tuple[int, ...], int] = {}
        self._sequences = 0
        for sequence in sequences:
            self.add(sequence)

    @cached_property
    def sees(self) -> npt.NDArray[np.bool_]:
        """What each node attends to: its ancestors and itself. [nodes, nodes]"""
        sees = np.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node] |= sees[parent]
        return sees

    def add(self, sequence: Scored) -> None:
        """Add a sequence, of which only what is new makes nodes. Nothing follows its last token, which makes none."""
        prompt_ids, response_ids, weight = sequence
        prompt = tuple(prompt_ids if response_ids else prompt_ids[:-1])
        if prompt not in self._ends:
            self._ends[prompt] = reduce(self._child, prompt, -1)
        node = self._ends[prompt]
        for place, token in enumerate(response_ids):
            if place:
                node = self._child(node, response_ids[place - 1])
            self.targets.append((node, token))
            self.weights.append(weight)
            self.owners.append(self._sequences)
        self._sequences += 1

    def _child(self, node: int, token: int) -> int:
        """The node of a token behind another node (-1: behind nothing), made if it is new."""
        if (node, token) not in self._children:
            self._children[node, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.positions.append(self.positions[node] + 1 if node >= 0 else 0)
        return self._children[node, token]


def distributions(model: PreTrainedModel, trees: Sequence[Tree]) -> tuple[torch.Tensor, torch.Tensor]:
    """The distributions that the targets of all trees come from, at temperature 1, by a tiny model.

    Returns:
        Log-probabilities of all tokens, once for each node that targets follow [nodes, vocabulary], and for each
        target, tree after tree, its row of these [number of targets].
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    device = model.device
    ids = pad_sequence([torch.tensor(tree.tokens) for tree in trees], batch_first=True)
    positions = pad_sequence([torch.tensor(tree.positions) for tree in trees], batch_first=True)
    longest = ids.shape[1]
    blind = ~torch.eye(longest, dtype=torch.bool).repeat(len(trees), 1, 1)  # padding sees itself: else it is NaN
    for row, tree in enumerate(trees):
        blind[row, : len(tree.tokens), : len(tree.tokens)] = torch.from_numpy(~tree.sees)
    blind = blind.to(device)[:, None]
    mask = torch.zeros(blind.shape, device=device).masked_fill_(blind, torch.finfo(torch.float32).min)
    hidden = model.model(
        input_ids=ids.to(device),
        position_ids=positions.to(device),
        attention_mask={"full_attention": mask},
        use_cache=False,
    ).last_hidden_state
    nodes = torch.tensor([row * longest + node for row, tree in enumerate(trees) for node, _ in tree.targets])
    # Where several targets follow one node, its distribution is computed once.
    places, which = torch.unique(nodes.to(device), return_inverse=True)
    return torch.log_softmax(model.lm_head(hidden.flatten(0, 1)[places]).float(), dim=-1), which


# -- scores ------------------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A prompt and the answers to it, as token ids; an answer is without the token that ends it."""

    prompt_ids: Sequence[int]
    answers: Sequence[Sequence[int]]


#: By (question, answer), both counted from 0, the log-probability of the answer followed by any end token.
Scores = dict[tuple[int, int], float]


def score_answers(
    model: Any,
    questions: Sequence[Question],
    ends: Sequence[int],
    temperature: float,
    max_tokens: int,
    device: Any,
    share: tuple[int, int] = (0, 1),
) -> Scores:
    """The scores of answers by a causal language model of transformers.

    Args:
        ends: the tokens that end a response.
        temperature: above 0.
        max_tokens: an answer that is longer, with its end token, is left out.
        share: of several ranks this one's number, and how many they are; a rank computes a part of the scores.
    """
    import torch

    made = _batches(model, questions, ends, max_tokens)
    rank, ranks = share
    # Every rank runs as many batches, because each pass gathers the weights of all ranks' shards.
    mine = [made[i % len(made)] for i in range(rank, -(-len(made) // ranks) * ranks, ranks)]
    scores: Scores = {}
    with torch.no_grad(), _tree_attention(model):
        for tree, answers in mine:
            nodes, tokens = torch.tensor(tree.targets, device=device).T
            # Only the logits that are asked for, each once: with a real vocabulary a row takes half a megabyte.
            places, which = nodes.unique(return_inverse=True)
            logits = model(
                input_ids=torch.tensor([tree.tokens], device=device),
                position_ids=torch.tensor([tree.positions], device=device),
                attention_mask=torch.from_numpy(tree.sees).to(device)[None, None],
                use_cache=False,
                logits_to_keep=places,
            ).logits[0]
            log_p = (logits.float() / temperature).log_softmax(dim=-1)[which, tokens].double().cpu().numpy()
            for answer, value in zip(answers, np.bincount(tree.owners, weights=log_p), strict=True):
                scores[answer] = float(np.logaddexp(scores.get(answer, -math.inf), value))
    return scores


def in_order(questions: Sequence[Question], scores: Mapping[tuple[int, int], float]) -> list[list[float]]:
    """The scores of each question's answers; -inf for an answer that is too long."""
    return [[scores.get((i, j), -math.inf) for j in range(len(asked.answers))] for i, asked in enumerate(questions)]


def _batches(
    model: Any, questions: Sequence[Question], ends: Sequence[int], max_tokens: int
) -> list[tuple[Tree, list[tuple[int, int]]]]:
    """Trees that go through a model at a time, with the (question, answer) of each of their sequences. The same
    questions always make the same ones."""
    most = max(TREE_TOKENS, model.config.get_text_config().hidden_size)
    made: list[tuple[Tree, list[tuple[int, int]]]] = []
    for number, (prompt_ids, answers) in sorted(enumerate(questions), key=lambda numbered: tuple(numbered[1][0])):
        possible = [(place, answer) for place, answer in enumerate(answers) if len(answer) < max_tokens]
        if possible and (not made or len(made[-1][0].tokens) >= most):
            made.append((Tree(), []))
        for place, answer in possible:
            for end in ends:
                made[-1][0].add(Scored(list(prompt_ids), [*answer, end]))
                made[-1][1].append((number, place))
    return made


@contextmanager
def _tree_attention(model: Any) -> Iterator[None]:
    """Within it a model takes any mask, by torch's own attention, whichever kernel it has otherwise."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = before
