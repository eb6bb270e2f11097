"""A model's responses by transformers: for one person at a table vLLM's start takes longer than the game."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...players.player import Generation
from ...players.records import Tokens
from ...processes.engine_failure import EngineFailure
from ..evaluation.scored import load
from .threads import begin


class Transformers:
    """A loaded model, on a GPU if there is one.

    Args:
        model, adapter: their folders; the adapter is LoRA's.
        ends: the tokens that end a response.

    Raises:
        ValueError: transformers cannot load it.
    """

    def __init__(self, model: Path, adapter: Path | None, ends: frozenset[int], name: str) -> None:
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.name, self._ends = name, ends
        try:
            self._model = load(model, adapter)
        except ImportError:
            raise
        except Exception as error:  # a damaged folder raises anything
            raise ValueError(
                f"{adapter or model}: transformers does not load it ({type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]})"
            ) from error

    async def generate(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        """A response, with the log-probability of each token under the distribution from which it was drawn.

        ``sampling`` has seed, max_tokens, temperature (0: the likeliest token), top_p, top_k (-1: all). Raises
        EngineFailure: the model fails, for instance because it gives no probabilities.
        """
        stop = threading.Event()
        try:
            return await asyncio.wrap_future(begin(lambda: self._sample(prompt_ids, sampling, stop)))
        except RuntimeError as error:
            raise EngineFailure(f"{self.name}: the model failed ({' '.join(str(error).split())[:300]})") from error
        finally:
            stop.set()  # nobody waits for what is still being written

    def _sample(self, prompt_ids: list[int], sampling: Mapping[str, Any], stop: threading.Event) -> Generation:
        import torch

        warp = _warpers(sampling)
        generator = torch.Generator(self._model.device).manual_seed(sampling["seed"])
        tokens: list[int] = []
        log_probs: list[float] = []
        past, read = None, torch.tensor([prompt_ids], device=self._model.device)
        with torch.inference_mode():
            while len(tokens) < sampling["max_tokens"] and not stop.is_set():
                output = self._model(input_ids=read, past_key_values=past, use_cache=True, logits_to_keep=1)
                past = output.past_key_values
                log_p = torch.log_softmax(warp(read, output.logits[:, -1].float()), dim=-1)
                chosen = torch.multinomial(log_p.exp(), 1, generator=generator)
                tokens.append(int(chosen))
                log_probs.append(float(log_p[0, chosen]))
                if tokens[-1] in self._ends:
                    break
                read = chosen
        truncated = not tokens or tokens[-1] not in self._ends
        return Generation(Tokens(prompt_ids, tokens, log_probs, None, self.name), truncated)


def _warpers(sampling: Mapping[str, Any]) -> Any:
    """What vLLM does to logits with these settings."""
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    temperature, top_k = sampling["temperature"], sampling["top_k"] if sampling["temperature"] else 1
    steps: list[Any] = [TemperatureLogitsWarper(float(temperature))] if temperature not in (0, 1) else []
    if top_k > 0:
        steps.append(TopKLogitsWarper(top_k))
    if sampling["top_p"] < 1:
        steps.append(TopPLogitsWarper(float(sampling["top_p"])))
    return LogitsProcessorList(steps)
