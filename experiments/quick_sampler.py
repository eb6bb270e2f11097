"""Samples from a small model without an engine, and computes nothing twice.

The distribution after a text changes only with the weights. In a small game nearly every text comes again, so after the
first games of a step sampling is a look-up.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from recipe.spiral.lab.models.sampler import Sampler
from recipe.spiral.players.policy import Generation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Text = tuple[int, ...]


class CachedSampler(Sampler):
    """A ``Sampler`` that remembers distributions until ``forget`` is called."""

    def __init__(self, model: PreTrainedModel, eos: int, max_tokens: int, temperature: float = 1.0) -> None:
        super().__init__(model, eos, max_tokens, temperature)
        #: By text: the cumulative probabilities of the next token.
        self._known: dict[Text, np.ndarray[Any, Any]] = {}
        #: By prompt: the responses with the present weights, and those with the weights before, which often come again.
        self._given: defaultdict[Text, set[Text]] = defaultdict(set)
        self._before: dict[Text, set[Text]] = {}

    def forget(self) -> None:
        """Call this when the weights have changed."""
        self._known.clear()
        self._before, self._given = dict(self._given), defaultdict(set)

    def sample(self, prompts: list[list[int]], seeds: list[int]) -> list[Generation]:
        """One response to each of the prompts."""
        draws = [random.Random(seed) for seed in seeds]
        begun: list[Text] = [tuple(prompt) for prompt in prompts]
        log_probs: list[list[float]] = [[] for _ in prompts]
        going = list(range(len(prompts)))
        for _ in range(self.max_tokens):
            self._look_up({begun[i] for i in going} - self._known.keys())
            for i in going:
                sums = self._known[begun[i]]
                token = min(int(sums.searchsorted(draws[i].random() * sums[-1], side="right")), len(sums) - 1)
                log_probs[i].append(log((sums[token] - (sums[token - 1] if token else 0.0)) / sums[-1]))
                begun[i] += (token,)
            going = [i for i in going if begun[i][-1] != self.eos]
            if not going:
                break
        answers = []
        for prompt, text, chosen in zip(prompts, begun, log_probs, strict=True):
            response = text[len(prompt) :]
            self._given[tuple(prompt)].add(response)
            answers.append(Generation(list(response), chosen, response[-1] != self.eos, None))
        return answers

    def _look_up(self, texts: Collection[Text]) -> None:
        """Compute the distributions after these texts, and along the responses that are likely to follow them."""
        if not texts:
            return
        import torch

        whole = [(len(text), text + usual) for text in sorted(texts) for usual in self._before.get(text, {()})]
        longest = max(len(text) for _, text in whole)
        ids = torch.zeros((len(whole), longest), dtype=torch.long)
        for row, (_, text) in enumerate(whole):
            ids[row, : len(text)] = torch.tensor(text)
        # a causal model does not see tokens to the right, so padding needs no mask
        with torch.inference_mode():
            logits = self.model(input_ids=ids.to(self.model.device)).logits
            sums = torch.softmax(logits.float() / self.temperature, dim=-1).double().cumsum(-1).cpu().numpy()
        for row, (start, text) in enumerate(whole):
            for end in range(start, len(text) + 1):
                if text[:end] not in self._known:
                    self._known[text[:end]] = sums[row, end - 1].copy()  # a copy, so that the whole array is not kept
