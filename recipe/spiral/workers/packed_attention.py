"""PyTorch's attention over packed rows: of each row by itself, without flash-attn.

verl packs the rows of a micro-batch into one, without padding, with positions that begin anew at each row. flash-attn
computes attention within these rows. Transformers' own form for PyTorch ("sdpa") computes it for each pair of the
micro-batch's tokens, and masks most of them. Here rows of nearly one length lie side by side while attention is
computed, with their ends padded. As attention is causal, no token sees padding, and no mask is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..processes.composing import PACKED


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    position_ids: torch.Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The form of transformers' ``AttentionInterface``.

    Args:
        query, key, value: of all tokens. [1, heads, tokens, width]
        position_ids: of each token in its row. [1, tokens]
        sliding_window: how many tokens a token sees, itself included; None: all before it.

    Returns:
        The values that each token attends to, and None in place of weights. [1, tokens, heads, width]

    Raises:
        ValueError: there are several rows, a mask, or no position for each token; or the model's attention has a bound
            of its logits, or sinks, which PyTorch's has not, or is not causal.
    """
    packed = len(query) == 1 and attention_mask is None
    if position_ids is None or position_ids.shape != (1, query.shape[2]) or not packed:
        raise ValueError(
            f"attn_implementation={PACKED}: rows are not packed, or the model does not tell its attention where they "
            "begin; take sdpa, and use_remove_padding=false"
        )
    if softcap is not None or s_aux is not None or not getattr(module, "is_causal", True):
        raise ValueError(f"attn_implementation={PACKED}: this model's attention is not of its kind; take eager")
    groups, back = packed_rows(position_ids)
    outputs = []
    for places in groups:
        states = (_side_by_side(part, places) for part in (query, key, value))
        mask = _band(places, sliding_window)
        output, _ = sdpa_attention_forward(module, *states, mask, **options)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).index_select(0, back).unsqueeze(0), None


def _side_by_side(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """[1, heads, tokens, width] to [rows, heads, longest, width]."""
    chosen = states[0].transpose(0, 1).index_select(0, places.flatten())
    return chosen.unflatten(0, places.shape).transpose(1, 2)


def _band(places: torch.Tensor, window: int | None) -> torch.Tensor | None:
    """Which tokens of a row see which, where a window is shorter than the rows. [longest, longest]"""
    longest = places.shape[1]
    if window is None or longest <= window:
        return None
    return torch.ones(longest, longest, dtype=torch.bool, device=places.device).tril().triu(1 - window)


@lru_cache(maxsize=1)  # by identity: each layer asks for those of its micro-batch, and again where it is computed again
def packed_rows(position_ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Where the tokens of packed rows lie while their attention is computed.

    Args:
        position_ids: of one micro-batch. [1, tokens]

    Returns:
        For each group of rows, which of all tokens is at each position; beyond a row's end it is the row's last one.
        [rows of the group, the longest's length]; and for each token its position among those of all groups, one after
        the other. [tokens]
    """
    positions, device = position_ids[0], position_ids.device
    goes_on = positions[1:] == positions[:-1] + 1
    starts = torch.cat([goes_on.new_zeros(1), goes_on]).logical_not().nonzero().squeeze(1)
    lengths = torch.cat([starts, starts.new_tensor([len(positions)])]).diff()
    of_rows = lengths.tolist()
    places, begins, first = [], [0] * len(of_rows), 0
    for group in _alike(of_rows):
        longest = of_rows[group[0]]
        rows = torch.tensor(group, device=device)
        within = torch.arange(longest, device=device).minimum(lengths[rows, None] - 1)
        places.append(starts[rows, None] + within)
        for i, row in enumerate(group):
            begins[row] = first + i * longest
        first += len(group) * longest
    moved = torch.tensor(begins, device=device) - starts
    return places, torch.arange(len(positions), device=device) + moved.repeat_interleave(lengths)


def _alike(lengths: list[int]) -> Iterator[list[int]]:
    """Groups of rows, each at least half as long as the longest of its group, which comes first."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if group and 2 * lengths[row] < lengths[group[0]]:
            yield group
            group = []
        group.append(row)
    yield group


AttentionInterface.register(PACKED, packed_attention)
