"""Every template with the forms of chat templates that models have."""

from __future__ import annotations

from itertools import product

import pytest

from recipe.spiral.players.prompts import TEMPLATES, History, Template, encoder, tells_the_date
from tests.chat_forms import FORMS, tokenizer

SEEN = "Two piles {3, 4}."
HISTORY: History = (("Two piles {4, 4}.", "[pile 0: 1]"), ("Two piles {3, 5}.", "[pile 1: 1]"))


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("gemma", "deaf")])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_a_prompt_is_whole_and_open(template: Template, form: str) -> None:
    for style, ends_texts in product(("state", "dialogue"), (False, True)):
        made = tokenizer(form, ends_texts)
        ids = encoder(made, template.name, style)(SEEN, HISTORY)
        assert ids[-1] != made.eos_token_id, "nothing would be left to say"
        if made.bos_token_id is not None and form != "smollm2":  # there it begins each message
            assert ids[0] == made.bos_token_id and made.bos_token_id not in ids[1:]
        asked, _ = str(made.decode(ids)).split(SEEN)
        assert (template.system or "") in asked
        for seen, action in HISTORY:
            assert (seen in asked) == (f"\\boxed{{{action}}}" in asked) == (style == "dialogue")


@pytest.mark.parametrize(
    "chat",
    [
        None,
        "{% for m in messages %}{{ m.content }}</s>{% endfor %}",  # ends what is to be gone on with
        "{{ 1 + messages }}",
        "{{ raise_exception('no') }}",
        "{{ messages[0].role * 99999999999999 }}",  # a MemoryError, which says nothing
    ],
)
def test_a_chat_template_that_makes_no_prompt_names_a_template_that_does(chat: str | None) -> None:
    made = tokenizer(None, template=chat)
    for template in TEMPLATES.values():
        if template.plain:
            assert made.decode(template.encode(made, SEEN)) == template.text(SEEN)
        else:
            with pytest.raises(ValueError, match=r"^\S.*; take prompt\.template=octothinker$"):
                template.encode(made, SEEN)


def test_a_chat_template_that_tells_the_date_tells_the_runs() -> None:
    made = tokenizer(None, template="{{ strftime_now('%d.%m.%Y') }} {{ messages[0].content }}")
    assert tells_the_date(made) and not tells_the_date(tokenizer("qwen3"))
    prompt = made.decode(TEMPLATES["chat"].encode(made, SEEN, date_string="05 Mar 2025"))
    assert prompt.startswith(f"05.03.2025 {SEEN}")
