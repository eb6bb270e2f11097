"""Log-probabilities of whole answers by transformers, at the temperature with which the policy plays.

They are exact up to rounding: each answer goes through the model, none is sampled. vLLM has other kernels and rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...players.player import PlayerMisconfigured
from ...players.prompts import Encode, Tokenizer
from ..models.answer_scores import Question, Scores, batches, in_order, log_probs, tree_attention
from .policy_weights import computed_in


class Scorer:
    """Scores the answers to observations; a ``Score`` of ``exploitability.policy_table``.

    ``score`` scores questions by the policy's model: ``of_model``, or by workers in a training.
    """

    def __init__(self, tokenizer: Tokenizer, encode: Encode, score: Callable[[Sequence[Question]], Scores]) -> None:
        self.encode, self.score = encode, score
        self._tokens = cache(lambda text: tokenizer.encode(text, add_special_tokens=False))

    def __call__(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """The log-probability of each answer followed by an end token, for each observation with its answers."""
        asked = [Question(self.encode(seen, ()), [self._tokens(text) for text in texts]) for seen, texts in questions]
        return in_order(asked, self.score(asked))


def of_model(
    model: Any, ends: Sequence[int], temperature: float, max_tokens: int
) -> Callable[[Sequence[Question]], Scores]:
    """Scores questions by a model of transformers, at a temperature above 0.

    An answer that has more than ``max_tokens`` tokens, with its end token, has probability 0.
    """

    def score(questions: Sequence[Question]) -> Scores:
        import torch

        scores: Scores = {}
        with torch.inference_mode(), tree_attention(model):
            for batch in batches(model, questions, ends, max_tokens):
                scores |= log_probs(model, batch, temperature, model.device)
        return scores

    return score


def load(model: Path, adapter: Path | None = None, dtype: str = "auto") -> Any:
    """A model for a ``Scorer``, on a GPU if there is one.

    Raises:
        PlayerMisconfigured: the model's weights have other shapes than its config says.
    """
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=computed_in(model, dtype), trust_remote_code=False)
    except RuntimeError as error:
        raise PlayerMisconfigured(f"{model}: its weights are not of the shapes that its config.json says") from error
    if adapter is not None:
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(loaded, adapter)
    return loaded.to(device).eval()
