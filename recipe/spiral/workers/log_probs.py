"""Log-probabilities of tokens without flash-attn: many rows at a time, in full precision, whatever the logits are in.

verl takes flash-attn's cross-entropy where that is installed, and otherwise one token at a time, forward and backward.
Here is the same function in plain torch, under the interface of flash-attn's, and verl's switch is set to take it.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.utils import torch_functional

#: Rows, and elements of the logits, that are computed at once: they bound the memory besides the logits to a few times
#: 256 MB.
ROWS, ELEMENTS = 4096, 2**26


class _LogProbs(torch.autograd.Function):
    """``logits[i, labels[i]] - logsumexp(logits[i])``; saves the logits and one number a row."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, inplace: bool) -> torch.Tensor:
        rows = max(1, min(ROWS, ELEMENTS // logits.shape[-1]))
        normalizers = torch.cat([torch.logsumexp(_full(portion), dim=-1) for portion in logits.split(rows)])
        ctx.save_for_backward(logits, labels, normalizers)
        ctx.rows, ctx.inplace = rows, inplace
        return _full(logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)) - normalizers

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, labels, normalizers = ctx.saved_tensors
        result = logits.detach() if ctx.inplace else torch.empty_like(logits)
        parts = (part.split(ctx.rows) for part in (result, logits.detach(), labels, normalizers, gradients[0]))
        for written, portion, label, normalizer, gradient in zip(*parts, strict=True):
            chosen, weight = label.unsqueeze(-1), gradient.unsqueeze(-1)
            slope = (_full(portion) - normalizer.unsqueeze(-1)).exp_().mul_(-weight)
            slope.scatter_(-1, chosen, slope.gather(-1, chosen) + weight)
            written.copy_(slope)
        return result, None, None


def _full(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def log_probs(logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool = False) -> torch.Tensor:
    """The log-probability of each label, in float32 (float64 for float64). [...]

    Args:
        logits: of any floating type. [..., vocabulary]
        labels: token ids. [...]
        inplace_backward: whether the gradient may take the logits' place, which spares a tensor of their size.
    """
    flat: torch.Tensor = _LogProbs.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), inplace_backward)
    return flat.view(labels.shape)


def cross_entropy_loss(
    logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool = False
) -> tuple[torch.Tensor, None]:
    """As ``flash_attn.ops.triton.cross_entropy.cross_entropy_loss``, whose second value verl does not read."""
    return -log_probs(logits, labels, inplace_backward), None


def install() -> None:
    """Let verl take these, in this process; flash-attn's stays where it is installed, except where verl's determinism
    forbids it."""
    torch_functional.logprobs_from_logits_v2 = log_probs
    if not torch_functional.FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE:
        torch_functional.cross_entropy_loss = cross_entropy_loss
        torch_functional.FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE = True
