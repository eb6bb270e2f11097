"""Prompts that are tokens already reach vLLM's engine in the form that vLLM's own renderers make.

verl hands over tokens as a raw prompt. vLLM 0.27 looks into those in a second thread, where there is nothing to
render, and each request waits until Python lets that thread run and the event loop again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from vllm.inputs.engine import tokens_input


class TokenPrompts:
    """vLLM's engine behind that; a prompt with images, sound or video stays as it is."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, prompt: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if not prompt.get("multi_modal_data"):
            prompt = tokens_input(prompt["prompt_token_ids"])
        answers: AsyncIterator[Any] = self._engine.generate(prompt, *args, **kwargs)
        return answers
