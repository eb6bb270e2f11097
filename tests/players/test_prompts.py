"""Prompt templates in full, and with the forms of chat templates that models have; what is read out of a response."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import Any

import pytest

from recipe.spiral.players.prompts import TEMPLATES, History, Template, encoder, extract_answer, tells_the_date
from tests.made import in_linear_time
from tests.players.chat_forms import FORMS, tokenizer

OBSERVATION = "Two piles {3, 4}.\nTake from one."
GOAL = "You are playing a two-player zero-sum game. Make valid actions to win."
STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."
CHAT = f"{OBSERVATION}\nPut your answer within \\boxed{{}}."
QWEN = f"{GOAL}\nObservation: {OBSERVATION}\n{STEP_BY_STEP}"
LLAMA = f"Current Observation: {OBSERVATION}\n{STEP_BY_STEP}"
QUESTION = f"Question: {OBSERVATION}\n{STEP_BY_STEP}"
BASE = (
    "^Below is a conversation between User and Assistant. {} Assistant thinks first, step by step, and then gives {} "
    "within \\boxed{{}}, from where it is read.\nUser: {}: Two piles {{3, 4}}.\nTake from one.\nAssistant:"
)
ASSISTANT = "<s>assistant\n"


class Characters:
    """A tokenizer whose tokens are characters, with a token for the beginning and a chat template that can be read."""

    chat_template = "no date"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord("^")] * add_special_tokens + [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(self, conversation: Sequence[dict[str, str]], **kwargs: Any) -> list[int]:
        assert kwargs.pop("tokenize") and kwargs.pop("add_generation_prompt") and not kwargs.pop("return_dict")
        text = "".join(f"<s>{message['role']}\n{message['content']}</s>" for message in conversation)
        return self.encode(text + "".join(f"<{name}>" for name in kwargs) + ASSISTANT, add_special_tokens=False)


def user(text: str) -> str:
    return f"<s>user\n{text}</s>{ASSISTANT}"


def system(text: str, question: str) -> str:
    return f"<s>system\n{text}</s>{user(question)}"


BOX = "Put your answer within \\boxed{}."
EXAMPLES = (
    "<s>user\nRock, paper, scissors. Both players choose at the same time; rock beats scissors, scissors beat paper, "
    f"paper beats rock.\nAnswer with [rock], [paper] or [scissors].\n{BOX}</s><s>assistant\n\\boxed{{[paper]}}</s>"
    "<s>user\nMatching pennies. Both players show a side of a coin. You win if the sides are the same.\nSo far: you "
    f"[heads], opponent [tails]\nAnswer with [heads] or [tails].\n{BOX}</s><s>assistant\n\\boxed{{[heads]}}</s>"
)
EXAMPLE_QUESTIONS = (
    f"<s>user\nWhat is 3 + 4 * 2?\n{STEP_BY_STEP}</s>"
    "<s>assistant\n4 * 2 is 8, and 3 + 8 is 11. The answer is \\boxed{11}.</s>"
    f"<s>user\nA bag holds 12 apples. A third of them are red. How many are not?\n{STEP_BY_STEP}</s>"
    "<s>assistant\n4 are red, and 12 - 4 is \\boxed{8}.</s>"
)
GOLDEN = {
    "chat": user(CHAT),
    "chat_general": user(f"{OBSERVATION}\n{STEP_BY_STEP}"),
    "chat_examples": EXAMPLES + user(CHAT),
    "chat_examples_general": EXAMPLE_QUESTIONS + user(f"{OBSERVATION}\n{STEP_BY_STEP}"),
    "qwen3": user(QWEN),
    "qwen3_general": user(QUESTION),
    "llama_instruct": system(GOAL, LLAMA),
    "llama_instruct_general": system("You are a helpful assistant.", QUESTION),
    "octothinker": BASE.format(
        "User shows what a player of a zero-sum game sees.", "a valid action that helps to win", "Observation"
    ),
    "octothinker_general": BASE.format("User asks a question.", "the answer", "Question"),
}


def test_every_template_in_full() -> None:
    made = {name: template.encode(Characters(), OBSERVATION) for name, template in TEMPLATES.items()}
    assert {name: "".join(map(chr, ids)) for name, ids in made.items()} == GOLDEN


HISTORY = (("Two piles {4, 4}.", "[pile 0: 1]"), ("Look:\n{observation}", "[pile 1: 1]"))


def prompt(template: str, style: str = "dialogue", **kwargs: Any) -> str:
    return "".join(map(chr, encoder(Characters(), template, style, **kwargs)(OBSERVATION, HISTORY)))


def test_a_dialogue_is_a_conversation_of_several_turns() -> None:
    def turns(form: str) -> str:
        return "".join(
            f"<s>user\n{form.replace(OBSERVATION, seen)}</s><s>assistant\n\\boxed{{{action}}}</s>"
            for seen, action in HISTORY
        )

    assert prompt("chat") == turns(CHAT) + user(CHAT)
    assert prompt("chat_examples") == EXAMPLES + turns(CHAT) + user(CHAT)
    assert prompt("llama_instruct") == f"<s>system\n{GOAL}</s>{turns(LLAMA)}{user(LLAMA)}", "the system speaks once"
    head, last = GOLDEN["octothinker"].split("\nUser: ")
    said = "".join(f"\nUser: Observation: {seen}\nAssistant: \\boxed{{{action}}}" for seen, action in HISTORY)
    assert prompt("octothinker") == f"{head}{said}\nUser: {last}"


def test_a_runs_day_is_every_clock_of_a_chat_template() -> None:
    class Dated(Characters):
        def apply_chat_template(self, conversation: Sequence[dict[str, str]], **kwargs: Any) -> list[int]:
            clock = kwargs.get("strftime_now", datetime.now().strftime)
            return self.encode(f"{clock('%Y-%m-%d')} {kwargs.get('date_string')}")

    ids = encoder(Dated(), "chat", "state", date_string="05 Mar 2025")("x", ())
    assert "".join(map(chr, ids)) == "^2025-03-05 05 Mar 2025"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("I bet. \\boxed{[bet]}", "[bet]"),
        ("\\boxed{1} or rather \\boxed{2}", "2"),
        ("\\boxed{1} or rather \\boxed{2", "1"),  # the second is cut off
        ("no box", None),
        ("\\boxed{never closed", None),
        ("\\boxed{\\text{bet}}", "bet"),
        ("\\boxed{\\textbf{\\text{bet}}}", "bet"),
        ("\\boxed{\\mathrm{[Bet]}}", "[Bet]"),
        ("\\boxed{\\{1}, 2\\}}", "{1"),  # an escaped brace is none
        ("\\boxed{\\boxed{4}}", "4"),
        ("$\\boxed{$4$}$", "4"),
        ("\\boxed{\\(3\\ \\text{Wood}\\)~\\_}", "3 Wood _"),
        ("{ unbalanced \\boxed{4}", "4"),
        ("\\boxed{a{b}c}", "a{b}c"),
        ("\\boxed{[8] but I choose [0]}", "[8] but I choose [0]"),  # what it means is the game's to say
    ],
)
def test_reading_an_answer(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize("piece", ["\\boxed{", "\\boxed{}", "{", "}", "\\text{", "\\boxed{\\text{", "\\{", "\\", "["])
def test_reading_takes_linear_time(piece: str) -> None:
    text = piece * (50_000 // len(piece))
    assert in_linear_time(lambda text: extract_answer(text), text)
    assert in_linear_time(lambda text: extract_answer(f"\\boxed{{{text}}}"), text)


SEEN = "Two piles {3, 4}."
EARLIER: History = (("Two piles {4, 4}.", "[pile 0: 1]"), ("Two piles {3, 5}.", "[pile 1: 1]"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_a_prompt_is_whole_and_open(template: Template, form: str) -> None:
    for style, ends_texts in product(("state", "dialogue"), (False, True)):
        made = tokenizer(form, ends_texts)
        ids = encoder(made, template.name, style)(SEEN, EARLIER)
        assert ids[-1] != made.eos_token_id, "nothing would be left to say"
        if made.bos_token_id is not None and form != "smollm2":  # there it begins each message
            assert ids[0] == made.bos_token_id and made.bos_token_id not in ids[1:]
        asked, _ = str(made.decode(ids)).split(SEEN)
        assert (template.system or "") in asked
        for seen, action in EARLIER:
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
