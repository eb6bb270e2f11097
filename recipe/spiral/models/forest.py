"""Many sequences in one forward pass, every common beginning computed once.

What is asked of a model about one observation begins alike, so the sequences of an observation are written as a tree of
tokens. A token sees its ancestors, at the positions that it would have in a sequence by itself; a model with relative
or absolute positions and no state gives the same logits as for the sequences one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass
class Tree:
    """Sequences that begin alike, as nodes; a node's parent comes before it.

    Attributes:
        tokens: each node's token.
        parents: each node's parent; -1 for the first.
        depths: each node's position.
        targets: for every response token that is scored: (the node before it, the token).
        weights: the weight of each target in the loss.
        owners: the sequence of each target.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    targets: list[tuple[int, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, sequences: Sequence[tuple[list[int], list[int], float]]) -> Tree:
        """The tree of (prompt ids, response ids, weight); nothing has to follow a response's last token."""
        tree = cls()
        children: dict[tuple[int, int], int] = {}
        for owner, (prompt, response, weight) in enumerate(sequences):
            node = -1
            for place, token in enumerate([*prompt, *response]):
                if place >= len(prompt):
                    tree.targets.append((node, token))
                    tree.weights.append(weight)
                    tree.owners.append(owner)
                if place == len(prompt) + len(response) - 1:
                    break
                if (node, token) not in children:
                    children[node, token] = len(tree.tokens)
                    tree.tokens.append(token)
                    tree.parents.append(node)
                    tree.depths.append(place)
                node = children[node, token]
        return tree


def log_probs(model: PreTrainedModel, trees: Sequence[Tree]) -> torch.Tensor:
    """Log-probabilities at temperature 1 of all targets of all trees, one after the other: [number of targets]."""
    import numpy as np
    import torch

    longest = max(len(tree.tokens) for tree in trees)
    ids = np.zeros((len(trees), longest), dtype=np.int64)
    positions = np.zeros((len(trees), longest), dtype=np.int64)
    sees = np.zeros((len(trees), longest, longest), dtype=bool)
    sees[:, np.arange(longest), np.arange(longest)] = True  # padding sees itself: a row of nothing would be NaN
    for row, tree in enumerate(trees):
        ids[row, : len(tree.tokens)] = tree.tokens
        positions[row, : len(tree.tokens)] = tree.depths
        for node, parent in enumerate(tree.parents):
            if parent >= 0:
                sees[row, node] |= sees[row, parent]
    mask = torch.from_numpy(sees)[:, None]
    hidden = model.model(
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(positions),
        attention_mask={"full_attention": torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)},
        use_cache=False,
    ).last_hidden_state
    rows = [row for row, tree in enumerate(trees) for _ in tree.targets]
    nodes = [node for tree in trees for node, _ in tree.targets]
    tokens = torch.tensor([token for tree in trees for _, token in tree.targets])
    # several targets follow one node: the distribution is computed once for each node
    places, which = torch.unique(torch.tensor(rows) * longest + torch.tensor(nodes), return_inverse=True)
    log_p = torch.log_softmax(model.lm_head(hidden.flatten(0, 1)[places]).float(), dim=-1)
    return log_p[which, tokens]
