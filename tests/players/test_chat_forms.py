"""Every template with the forms of chat templates that models have."""

from __future__ import annotations

import pytest

from recipe.spiral.players.prompts import TEMPLATES, History, Template, encoder
from tests.chat_forms import FORMS, tokenizer

SEEN = "Two piles {3, 4}."
HISTORY: History = (("Two piles {4, 4}.", "[pile 0: 1]"), ("Two piles {3, 5}.", "[pile 1: 1]"))


def prompt(form: str | None, template: Template, style: str, ends_texts: bool, **kwargs: object) -> str:
    made = tokenizer(form, ends_texts)
    ids = encoder(made, template.name, style, **kwargs)(SEEN, HISTORY)
    assert ids[-1] != made.eos_token_id, "nothing would be left to say"
    if made.bos_token_id is not None and form != "smollm2":  # there it begins each message
        assert ids[0] == made.bos_token_id and made.bos_token_id not in ids[1:]
    return str(made.decode(ids))


@pytest.mark.parametrize("ends_texts", [False, True], ids=["", "texts end"])
@pytest.mark.parametrize("style", ["state", "dialogue"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_a_prompt_is_whole_and_open(template: Template, form: str, style: str, ends_texts: bool) -> None:
    text = prompt(form, template, style, ends_texts)
    asked, after = text.split(SEEN)
    assert (template.system or "") in asked
    for seen, action in HISTORY:
        assert (seen in asked) == (f"\\boxed{{{action}}}" in asked) == (style == "dialogue")
    opened = bool(template.begin) or (not template.plain and form in ("qwen3_thinking", "r1_distill"))
    assert after.count("<think>") == opened and "</think>" not in after
    assert not opened or after.rstrip().endswith("<think>"), "the response goes on from there"


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_reasoning_that_the_model_is_told_to_leave_out_is_not_opened(template: Template) -> None:
    def asked(template: Template) -> str:
        return prompt("qwen3", template, "state", False, enable_thinking=False).split(SEEN)[1]

    if template.plain:
        assert asked(template).count("<think>") == bool(template.begin)
    elif template.begin:
        fitting = template.name.replace("_think", "").removesuffix("_general")
        with pytest.raises(ValueError, match=rf"enable_thinking=false; take prompt\.template={fitting}$"):
            asked(template)
        assert fitting in TEMPLATES
    else:
        assert asked(template).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
@pytest.mark.parametrize(
    "chat",
    [
        None,
        "{% for m in messages %}{{ m.content }}</s>{% endfor %}",
        "{{ 1 + messages }}",
        "{{ raise_exception('no') }}",
        "{{ messages[0].role * 99999999999999 }}",  # a MemoryError, which says nothing
    ],
)
def test_a_chat_template_that_makes_no_prompt_names_a_template_that_does(template: Template, chat: str | None) -> None:
    made = tokenizer(None, template=chat)
    if template.plain:
        assert made.decode(template.encode(made, SEEN)) == template.text(SEEN)
        return
    end = "_think" if template.begin else ""
    with pytest.raises(ValueError, match=rf"^\S.*; take prompt\.template=r1{end} or octothinker{end}$"):
        template.encode(made, SEEN)
