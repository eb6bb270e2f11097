"""Log-probabilities of whole answers, by transformers: exact, at the temperature with which the policy plays.

Where vLLM has kernels and rounding of its own, this is the model as it is written down; on a CPU in full precision.
"""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...play.prompts import Encode, Tokenizer

if TYPE_CHECKING:
    import torch

#: Tokens of keys and values that are there at a time, to bound memory.
_TOKENS_AT_ONCE = 65536


class Scorer:
    """``Score`` for ``policy_reading.read_scores``.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        encode: an observation as a prompt.
        ends: the tokens that end a response.
        temperature: the policy's, above 0.
        max_tokens: the longest response; an answer that is longer, with its end, has no probability.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        encode: Encode,
        ends: frozenset[int],
        temperature: float,
        max_tokens: int,
    ) -> None:
        self.model, self.tokenizer, self.encode = model, tokenizer, encode
        self.ends, self.temperature, self.max_tokens = sorted(ends), temperature, max_tokens
        if not temperature > 0:
            raise ValueError(f"sampling.temperature={temperature}: answers have log-probabilities above 0 only")

    def __call__(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """The log-probability of each answer, and then of an end."""
        prompts = [self.encode(observation, ()) for observation, _ in questions]
        answers = [[self.tokenizer.encode(text, add_special_tokens=False) for text in said] for _, said in questions]
        by_length: dict[int, list[int]] = defaultdict(list)
        for place, prompt in enumerate(prompts):
            by_length[len(prompt)].append(place)  # prompts of one length together: no padding
        scores: list[list[float]] = [[] for _ in questions]
        for length, places in sorted(by_length.items()):
            while places:
                batch: list[int] = []
                tokens = 0
                while places and (not batch or tokens < _TOKENS_AT_ONCE):
                    batch.append(places.pop())
                    tokens += length * len(answers[batch[-1]])
                for place, found in zip(
                    batch, self._score([prompts[p] for p in batch], [answers[p] for p in batch]), strict=True
                ):
                    scores[place] = found
        return scores

    def _score(self, prompts: list[list[int]], answers: list[list[list[int]]]) -> list[list[float]]:
        """Of prompts of one length: the prompts go through the model once, and each answer behind its own."""
        import torch

        device = self.model.device
        rows = [row for row, said in enumerate(answers) for _ in said]
        flat = [answer for said in answers for answer in said]
        longest = max(map(len, flat))
        padded = torch.tensor([[*answer, *[0] * (longest - len(answer))] for answer in flat], device=device)
        with torch.inference_mode():
            output = self.model(input_ids=torch.tensor(prompts, device=device), use_cache=True, logits_to_keep=1)
            past = output.past_key_values
            index = torch.tensor(rows, device=device)
            past.reorder_cache(index)
            first = output.logits[index, -1:]
            behind = self.model(input_ids=padded, past_key_values=past, use_cache=True).logits
            log_p = self._log_p(torch.cat([first, behind], dim=1))  # [answers, longest + 1, vocabulary]
            chosen = log_p[:, :-1].gather(2, padded[..., None])[..., 0].double().cpu()
            ends = torch.logsumexp(log_p[..., self.ends].double(), dim=-1).cpu()
        totals = [
            float(chosen[i, : len(answer)].sum() + ends[i, len(answer)]) if len(answer) < self.max_tokens else -math.inf
            for i, answer in enumerate(flat)
        ]
        values = iter(totals)
        return [[next(values) for _ in said] for said in answers]

    def _log_p(self, logits: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.log_softmax(logits.float() / self.temperature, dim=-1)


def free() -> None:
    """Give back the memory of models that nobody holds any more."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def load(model: Path, adapter: Path | None = None, dtype: str = "auto") -> Any:
    """A model for a ``Scorer``, on a GPU if there is one.

    Raises:
        ImportError: an adapter, and peft is not installed.
    """
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, trust_remote_code=False)
    if adapter is not None:
        from ...export.lora import import_peft

        loaded = import_peft().PeftModel.from_pretrained(loaded, adapter)
    return loaded.to(device).eval()
