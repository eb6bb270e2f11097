"""A prompt of tokens reaches vLLM's engine as vLLM's own renderers would give it; others as verl made them."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.inputs import TokensPrompt

from recipe.spiral.runtime.server import TokenPrompts


class Engine:
    name = "vLLM"

    def generate(self, prompt: Any, **kwargs: Any) -> Any:
        return prompt, kwargs


@pytest.mark.parametrize(
    "empty", [{}, {"multi_modal_data": {}}, {"multi_modal_data": {}, "mm_processor_kwargs": {"a": 1}}]
)
def test_tokens_are_an_engines_input(empty: dict[str, Any]) -> None:
    made: Any = TokenPrompts(Engine())
    prompt, others = made.generate(prompt=TokensPrompt(prompt_token_ids=[1, 2], **empty), request_id="r", priority=1)
    assert prompt == {"type": "token", "prompt_token_ids": [1, 2]} and others == {"request_id": "r", "priority": 1}
    assert made.name == "vLLM", "all else is the engine's"


def test_a_prompt_with_an_image_stays_as_it_is() -> None:
    with_image: Any = {"prompt_token_ids": [1], "multi_modal_data": {"image": "pixels"}}
    made: Any = TokenPrompts(Engine())
    assert made.generate(with_image)[0] is with_image
