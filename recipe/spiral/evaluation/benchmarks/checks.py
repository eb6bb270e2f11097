"""Checks that the questions of ``validation.benchmarks`` are there, can be judged, and are not too long."""

from __future__ import annotations

import importlib.util

from omegaconf import DictConfig, OmegaConf

from ...extras import install
from ...players.prompts import Tokenizer, general_template
from .catalog import get_benchmark
from .entries import SETTING, Entry, parse_entries, questions_of


def check_entries(config: DictConfig) -> None:
    """See that the questions are there and can be judged.

    Raises:
        ValueError: they cannot; the message names the setting and what to do.
    """
    entries = parse_entries(config.validation.benchmarks)
    longest = config.data.max_response_length
    for entry in entries:
        if entry.max_tokens is not None and entry.max_tokens > longest:
            raise ValueError(
                f"{SETTING}: {entry.id} has max_tokens={entry.max_tokens}: more than "
                f"data.max_response_length={longest}; lower it, or raise that"
            )
        _template(entry, config)
    math = any(get_benchmark(entry.id).kind == "math" for entry in entries)
    if math and importlib.util.find_spec("math_verify") is None:
        raise ValueError(
            f"{SETTING}: the answers of math benchmarks are judged by math-verify, which is not installed: "
            f"{install('math')}"
        )
    for entry in entries:
        questions_of(entry)


def check_prompts(config: DictConfig, tokenizer: Tokenizer) -> None:
    """See that every question's prompt can be made, and that none is too long.

    Raises:
        ValueError: a prompt cannot be made, or is too long; the message names the setting and what to do.
    """
    from jinja2 import TemplateError

    limit = config.data.max_prompt_length
    kwargs = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    assert isinstance(kwargs, dict)
    for entry in parse_entries(config.validation.benchmarks):
        template = general_template(_template(entry, config))
        for question in questions_of(entry):
            try:
                prompt = template.encode(
                    tokenizer, question.prompt, **{str(name): value for name, value in kwargs.items()}
                )
            except (ValueError, TemplateError) as error:
                raise ValueError(
                    f"{SETTING}: {entry.id}: template={template.name} does not go with "
                    f"{config.actor_rollout_ref.model.path}: {error}; a model without a chat template takes r1 or "
                    "octothinker"
                ) from error
            if len(prompt) > limit:
                raise ValueError(
                    f"data.max_prompt_length={limit}: question {question.id} of {entry.id} has {len(prompt)} tokens "
                    f"with this tokenizer, and prompts are never cut; raise it, or leave {entry.id} out of {SETTING}"
                )


def _template(entry: Entry, config: DictConfig) -> str:
    """The name of an entry's template.

    Raises:
        ValueError: it has no form for questions.
    """
    name = str(entry.template or config.prompt.template)
    general_template(name)
    return name
