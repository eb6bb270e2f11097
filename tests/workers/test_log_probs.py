"""Log-probabilities without flash-attn are verl's."""

from __future__ import annotations

import inspect

import pytest
import torch
from verl.utils import torch_functional

from recipe.spiral.workers import engine, log_probs  # noqa: F401  (importing the engine installs them)


def drawn(rows: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(rows, width, generator=generator)
    return logits.to(dtype), torch.randint(width, (rows,), generator=generator)


def exact(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """In double precision, of the logits as they are."""
    return logits.double().log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 7, log_probs.ROWS + 3])
def test_they_and_their_gradients_are_exact_for_the_logits_that_there_are(
    rows: int, dtype: torch.dtype, inplace: bool
) -> None:
    logits, labels = drawn(rows, 11, dtype)
    double = logits.double().clone().requires_grad_()
    expected = exact(double, labels)
    expected.square().sum().backward()
    leaf = logits.clone().requires_grad_()
    got = log_probs.log_probs(leaf * 1, labels, inplace)
    assert got.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=2e-6)
    got.square().sum().backward()
    assert double.grad is not None and leaf.grad is not None
    torch.testing.assert_close(
        leaf.grad, double.grad.to(dtype), rtol=0.01 if dtype == torch.bfloat16 else 1e-5, atol=1e-5
    )


def test_the_place_of_logits_that_were_given_away_is_not_read_again() -> None:
    """A second backward pass would read gradients for logits."""
    logits, labels = drawn(3, 5, torch.float32)
    got = log_probs.log_probs(logits.requires_grad_() * 1, labels, inplace_backward=True).sum()
    got.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        got.backward()


@pytest.mark.parametrize("deterministic", ["0", "1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_verl_takes_them(dtype: torch.dtype, deterministic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With verl's determinism, too, which switches flash-attn's off."""
    monkeypatch.setenv("VERL_DISABLE_FLASH_ATTN_CE", deterministic)
    taken: list[int] = []
    apply = log_probs._LogProbs.apply
    monkeypatch.setattr(log_probs._LogProbs, "apply", lambda *args: taken.append(1) or apply(*args))
    logits, labels = drawn(7, 11, dtype)
    got = torch_functional.logprobs_from_logits(logits, labels)
    assert taken == [1]
    torch.testing.assert_close(got.double(), exact(logits, labels), rtol=1e-6, atol=2e-6)


def test_verl_still_takes_one_token_at_a_time_without_flash_attn() -> None:
    """Fails when ``log_probs.install`` can go, or would no longer reach the call."""
    text = inspect.getsource(inspect.getmodule(torch_functional.masked_mean))  # type: ignore[arg-type]
    assert "torch.stack([torch.logsumexp(logit, dim=-1) for logit in logits])" in text
    assert "for row_logits, row_labels in zip(logits, labels, strict=True):" in text
    assert "output = logprobs_from_logits_v2(logits, labels)" in text
    assert "output = cross_entropy_loss(logits, labels, inplace_backward=inplace_backward)" in text
    assert "assert isinstance(output, tuple)" in text and "return -output[0]" in text
