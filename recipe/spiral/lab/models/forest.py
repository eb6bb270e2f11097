"""Log-probabilities of many responses in one forward pass, every common beginning computed once.

Sequences about one observation begin alike, so they are written as a tree of tokens. A token attends to its ancestors
and has the position that it would have in a sequence by itself. So the logits are those of the sequences one by one,
for a third of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Scored(NamedTuple):
    """A prompt, a response whose tokens are scored, and the weight of the response in a loss."""

    prompt_ids: list[int]
    response_ids: list[int]
    weight: float = 1.0


@dataclass
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

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    targets: list[tuple[int, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    # Answers to one observation follow one another, and share its prompt: its path is walked once.
    _ends: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)
    _sequences: int = 0

    @cached_property
    def sees(self) -> npt.NDArray[np.bool_]:
        """What each node attends to: its ancestors and itself. [nodes, nodes]"""
        sees = np.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node] |= sees[parent]
        return sees

    @classmethod
    def of(cls, sequences: Sequence[Scored]) -> Tree:
        tree = cls()
        for sequence in sequences:
            tree.add(sequence)
        return tree

    def add(self, sequence: Scored) -> None:
        """Add a sequence, of which only what is new makes nodes."""
        prompt_ids, response_ids, weight = sequence
        prompt = tuple(prompt_ids if response_ids else prompt_ids[:-1])  # then nothing follows its last token
        if prompt not in self._ends:
            self._ends[prompt] = self._extend(-1, 0, prompt)
        node = self._ends[prompt]
        for position, token in enumerate(response_ids, len(prompt)):
            self.targets.append((node, token))
            self.weights.append(weight)
            self.owners.append(self._sequences)
            if position < len(prompt) + len(response_ids) - 1:
                node = self._extend(node, position, (token,))
        self._sequences += 1

    def _extend(self, node: int, start: int, tokens: Sequence[int]) -> int:
        """Add what is new of a path: these tokens after a node, from a position. Returns the node at its end."""
        for position, token in enumerate(tokens, start):
            if (node, token) not in self._children:
                self._children[node, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
                self.positions.append(position)
            node = self._children[node, token]
        return node


def log_probs(model: PreTrainedModel, trees: Sequence[Tree]) -> torch.Tensor:
    """Log-probabilities at temperature 1 of the targets of all trees, tree after tree: [number of targets]."""
    import torch

    log_p, which = distributions(model, trees)
    return log_p[which, torch.tensor([token for tree in trees for _, token in tree.targets], device=log_p.device)]


def distributions(model: PreTrainedModel, trees: Sequence[Tree]) -> tuple[torch.Tensor, torch.Tensor]:
    """The distributions that the targets of all trees come from, at temperature 1.

    Returns:
        Log-probabilities of all tokens, once for each node that targets follow [nodes, vocabulary], and for each
        target, tree after tree, its row of these [number of targets].
    """
    import torch

    longest = max(len(tree.tokens) for tree in trees)
    ids = np.zeros((len(trees), longest), dtype=np.int64)
    positions = np.zeros((len(trees), longest), dtype=np.int64)
    sees = np.zeros((len(trees), longest, longest), dtype=bool)
    sees[:, np.arange(longest), np.arange(longest)] = True  # padding sees itself: a row that sees nothing is NaN
    for row, tree in enumerate(trees):
        ids[row, : len(tree.tokens)] = tree.tokens
        positions[row, : len(tree.tokens)] = tree.positions
        sees[row, : len(tree.tokens), : len(tree.tokens)] = tree.sees
    device = model.device
    blind = ~torch.from_numpy(sees).to(device)[:, None]
    mask = torch.zeros(blind.shape, device=device).masked_fill_(blind, torch.finfo(torch.float32).min)
    hidden = model.model(
        input_ids=torch.from_numpy(ids).to(device),
        position_ids=torch.from_numpy(positions).to(device),
        attention_mask={"full_attention": mask},
        use_cache=False,
    ).last_hidden_state
    nodes = torch.tensor([row * longest + node for row, tree in enumerate(trees) for node, _ in tree.targets])
    # Where several targets follow one node, its distribution is computed once.
    places, which = torch.unique(nodes.to(device), return_inverse=True)
    return torch.log_softmax(model.lm_head(hidden.flatten(0, 1)[places]).float(), dim=-1), which


def probabilities(model: PreTrainedModel, groups: Sequence[Sequence[Scored]], rows: int = 16) -> list[list[float]]:
    """The probability of every response at temperature 1, group by group. A group is a tree; ``rows`` trees a pass."""
    import torch

    result: list[list[float]] = []
    with torch.inference_mode():
        for start in range(0, len(groups), rows):
            trees = [Tree.of(group) for group in groups[start : start + rows]]
            log_p = log_probs(model, trees).tolist()
            for tree, group in zip(trees, groups[start : start + rows], strict=True):
                sums = [0.0] * len(group)
                for owner, value in zip(tree.owners, log_p, strict=False):
                    sums[owner] += value
                del log_p[: len(tree.owners)]
                result.append(torch.tensor(sums).exp().tolist())
    return result
