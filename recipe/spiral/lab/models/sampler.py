"""Samples from a Hugging Face model for many games at once, without an engine.

All requests of one turn of the event loop are one batch. Each request is sampled with its own seed, so a game does not
depend on the games beside it, up to the rounding of batched sums.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...players.policy import Generation
from ...players.records import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Sampler:
    """``generate`` for ``PolicyPlayer``: plain sampling from the whole vocabulary, at temperature 1.

    Attributes:
        model: its mode and its device stay as they are.
        eos: the token that ends a response, kept in it.
        max_tokens: the longest response, in tokens.
    """

    def __init__(self, model: PreTrainedModel, eos: int, max_tokens: int) -> None:
        self.model, self.eos, self.max_tokens = model, eos, max_tokens
        self._waiting: list[tuple[list[int], int, asyncio.Future[Generation]]] = []

    async def generate(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._run)
        future: asyncio.Future[Generation] = loop.create_future()
        self._waiting.append((prompt_ids, int(sampling["seed"]), future))
        return await future

    def _run(self) -> None:
        """Answer all requests that wait. Prompts of one length are one batch, so that there is no padding."""
        waiting, self._waiting = self._waiting, []
        by_length = defaultdict(list)
        for request in waiting:
            by_length[len(request[0])].append(request)
        for requests in by_length.values():
            try:
                answers = self.sample([ids for ids, _, _ in requests], [seed for _, seed, _ in requests])
            except Exception as error:
                for _, _, future in requests:
                    future.set_exception(error)
                continue
            for (_, _, future), answer in zip(requests, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def sample(self, prompts: list[list[int]], seeds: list[int]) -> list[Generation]:
        """Sample a response to each of the prompts, which have the same length."""
        import torch

        generators = [random.Random(seed) for seed in seeds]
        ids: list[list[int]] = [[] for _ in prompts]
        log_probs: list[list[float]] = [[] for _ in prompts]
        unfinished = list(range(len(prompts)))
        past, inputs = None, torch.tensor(prompts, device=self.model.device)
        with torch.inference_mode():
            for _ in range(self.max_tokens):
                output = self.model(input_ids=inputs, past_key_values=past, use_cache=True, logits_to_keep=1)
                past = output.past_key_values
                log_p = torch.log_softmax(output.logits[:, -1].float(), dim=-1)
                draws = torch.tensor([generators[i].random() for i in unfinished], device=log_p.device)
                tokens = _draw(log_p, draws)
                chosen = log_p.gather(1, tokens[:, None])[:, 0].tolist()
                going = []
                for row, (i, token) in enumerate(zip(unfinished, tokens.tolist(), strict=True)):
                    ids[i].append(token)
                    log_probs[i].append(chosen[row])
                    if token != self.eos:
                        going.append(row)
                if not going:
                    break
                unfinished = [unfinished[row] for row in going]
                rows = torch.tensor(going, device=tokens.device)
                past.batch_select_indices(rows)
                inputs = tokens[rows][:, None]
        return [
            Generation(Tokens(prompt, tokens, log_p, weight_versions=(0, 0)), truncated=tokens[-1] != self.eos)
            for prompt, tokens, log_p in zip(prompts, ids, log_probs, strict=True)
        ]


def _draw(log_p: Any, draws: Any) -> Any:
    """Where uniform ``draws`` [batch] fall in the distributions ``log_p`` [batch, vocabulary]: tokens [batch]."""
    import torch

    cumulated = log_p.double().exp().cumsum(dim=-1)
    scaled = draws.double()[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, scaled, right=True)[:, 0].clamp(max=log_p.shape[1] - 1)
