"""Without flash-attn: packed rows have the log-probabilities and gradients of rows by themselves, and
log-probabilities are verl's."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from verl.utils import torch_functional

from recipe.spiral.processes.composing import PACKED
from recipe.spiral.workers import engine, log_probs  # noqa: F401  (importing the engine installs them)

MODELS: dict[str, Any] = {
    "qwen3": Qwen3Config(head_dim=8, tie_word_embeddings=True),
    "qwen2": Qwen2Config(tie_word_embeddings=False),
    "llama": LlamaConfig(tie_word_embeddings=False),
    # each token sees six others
    "mistral": MistralConfig(sliding_window=7),
    "gemma2": Gemma2Config(head_dim=8, sliding_window=7, attn_logit_softcapping=None),
}
#: Rows of one token, of equal lengths side by side, and a long one.
LENGTHS = (5, 1, 1, 9, 9, 30, 2)


def small(family: str, attention: str, **changes: Any) -> Any:
    config = copy.deepcopy(MODELS[family])
    config.vocab_size, config.hidden_size, config.intermediate_size = 64, 32, 64
    config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads = 2, 4, 2
    config.layer_types = ["sliding_attention", "full_attention"] if family == "gemma2" else ["full_attention"] * 2
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()


def rows_of(lengths: Any) -> list[torch.Tensor]:
    return [torch.randint(64, (length,)) for length in lengths]


def packed(model: Any, rows: list[torch.Tensor]) -> torch.Tensor:
    """The logits. [tokens, vocabulary]"""
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    logits: torch.Tensor = model(
        torch.cat(rows)[None], position_ids=positions[None], attention_mask=None, use_cache=False
    ).logits[0]
    return logits


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("family", "attention"), [*((family, PACKED) for family in MODELS), ("qwen3", "sdpa")])
def test_packed_rows_have_the_log_probs_and_gradients_of_rows_by_themselves(
    family: str, attention: str, checkpointing: bool
) -> None:
    """Without padding and flash-attn verl gives the model one row of all tokens, without a mask: from the positions it
    is known where rows begin, and attention must not look across."""
    plain, model = small(family, "eager"), small(family, attention)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    rows = rows_of(LENGTHS)

    def chosen(logits: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return log_probs.log_probs(logits, row.roll(-1))[:-1]

    def gradient(of: Any) -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in of.parameters() if p.grad is not None])

    alone = torch.cat([chosen(plain(input_ids=row[None], use_cache=False).logits[0], row) for row in rows])
    alone.sum().backward()
    together = torch.cat([chosen(*pair) for pair in zip(packed(model, rows).split(LENGTHS), rows, strict=True)])
    together.sum().backward()
    torch.testing.assert_close(together, alone, rtol=0, atol=5e-6)
    torch.testing.assert_close(gradient(model), gradient(plain), rtol=1e-4, atol=1e-5)


def test_what_it_cannot_compute_is_an_error() -> None:
    model, rows = small("qwen3", PACKED), rows_of([4, 4])
    with pytest.raises(ValueError, match="attn_implementation=spiral_packed: rows are not packed"):
        model(torch.stack(rows), attention_mask=torch.ones(2, 4), use_cache=False)
    capped = small("gemma2", PACKED, attn_logit_softcapping=50.0)
    with pytest.raises(ValueError, match=r"attn_implementation=spiral_packed: this model's attention .*; take eager"):
        packed(capped, rows)
    model.model.layers[0].self_attn.is_causal = False
    with pytest.raises(ValueError, match="this model's attention"):
        packed(model, rows)


def test_verl_packs_rows_without_a_mask() -> None:
    """What the tests above stand for."""
    from verl.workers.engine.fsdp import transformer_impl

    text = Path(inspect.getfile(transformer_impl)).read_text()
    assert '"input_ids": input_ids_rmpad,\n                "attention_mask": None,\n' in text
    assert '"position_ids": position_ids_rmpad,' in text


# -- log-probabilities are verl's --------------------------------------------------------------------------------------


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
