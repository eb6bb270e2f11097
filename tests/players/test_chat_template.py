"""A stranger's chat template is a program, which may have no end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from recipe.spiral.players import chat_template
from recipe.spiral.players.chat_template import check_ends
from tests import chat_forms

LOOP = "{% for i in range(99999) %}"


@pytest.mark.parametrize(
    "template",
    [
        f"{LOOP * 4}{'{% endfor %}' * 4}",
        f"{LOOP * 4}{{{{ messages }}}}{'{% endfor %}' * 4}",
        "{{ 'a' * 10 ** 11 }}",
        "{% set s = namespace(t='a') %}" + LOOP + "{% set s.t = s.t + s.t %}{% endfor %}",
        "{{ 'a' * 1000001 }}",
    ],
)
def test_one_that_takes_too_much_is_refused(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    monkeypatch.setattr(chat_template, "MEMORY", 2**29)
    with pytest.raises(ValueError, match=r"^model: its chat template does not end, or writes too much"):
        check_ends(chat_forms.tokenizer(None, template=template), "model")


def test_what_else_is_wrong_is_said_elsewhere() -> None:
    for form in chat_forms.FORMS:
        check_ends(chat_forms.tokenizer(form), "model")
    for template in ("{{ raise_exception('no') }}", "{% for %}", "{{ messages.a.b }}", "{{ " + "(" * 10_000, None):
        check_ends(chat_forms.tokenizer(None, template=template), "model")
    check_ends(SimpleNamespace(encode=list), "a tokenizer without templates")
    with pytest.raises(ValueError, match=r"^model: holds no tokenizer, or one without words"):
        check_ends(SimpleNamespace(encode=lambda text: []), "model")
