"""Log-probabilities of whole answers by transformers, at the temperature with which the policy plays.

They are exact up to rounding: each answer goes through the model, none is sampled. vLLM has other kernels and rounding.
"""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...play.prompts import Encode, Tokenizer

#: The most tokens whose keys and values are in memory at a time.
_TOKENS_AT_ONCE = 65536


class Scorer:
    """Scores the answers to observations; a ``Score`` of ``exploitability.policy_table``.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        encode: an observation as a prompt.
        ends: the tokens that end a response.
        temperature: the policy's, above 0.
        max_tokens: the longest response; an answer that is longer, with its end token, has probability 0.
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
            raise ValueError(f"sampling.temperature={temperature}: must be above 0 for log-probabilities of answers")

    def __call__(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """The log-probability of each answer followed by an end token, for each observation with its answers."""
        prompts = [self.encode(observation, ()) for observation, _ in questions]
        answers = [[self.tokenizer.encode(text, add_special_tokens=False) for text in texts] for _, texts in questions]
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
                results = self._score([prompts[place] for place in batch], [answers[place] for place in batch])
                for place, result in zip(batch, results, strict=True):
                    scores[place] = result
        return scores

    def _score(self, prompts: list[list[int]], answers: list[list[list[int]]]) -> list[list[float]]:
        """Score prompts of one length: each goes through the model once, and its answers after it."""
        import torch

        device = self.model.device
        rows = [row for row, texts in enumerate(answers) for _ in texts]
        flat = [answer for texts in answers for answer in texts]
        longest = max(map(len, flat))
        padded = torch.tensor([[*answer, *[0] * (longest - len(answer))] for answer in flat], device=device)
        with torch.inference_mode():
            output = self.model(input_ids=torch.tensor(prompts, device=device), use_cache=True, logits_to_keep=1)
            past = output.past_key_values
            index = torch.tensor(rows, device=device)
            past.reorder_cache(index)
            first = output.logits[index, -1:]
            after = self.model(input_ids=padded, past_key_values=past, use_cache=True).logits
            logits = torch.cat([first, after], dim=1)  # [answers, longest + 1, vocabulary]
            log_p = torch.log_softmax(logits.float() / self.temperature, dim=-1)
            chosen = log_p[:, :-1].gather(2, padded[..., None])[..., 0].double().cpu()
            ends = torch.logsumexp(log_p[..., self.ends].double(), dim=-1).cpu()
        totals = [
            float(chosen[i, : len(answer)].sum() + ends[i, len(answer)]) if len(answer) < self.max_tokens else -math.inf
            for i, answer in enumerate(flat)
        ]
        values = iter(totals)
        return [[next(values) for _ in texts] for texts in answers]


def free_memory() -> None:
    """Give back the memory of models that are not referred to any more."""
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
