"""Prompt templates, each in full; and what is read out of a response."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.lab.watching.reasoning import reasoning
from recipe.spiral.players.prompts import TEMPLATES, check_words, encoder, extract_answer, get_template, last_box
from tests.growth import in_linear_time

OBSERVATION = "Two piles {3, 4}.\nTake from one."
GOAL = "You are playing a two-player zero-sum game. Make valid actions to win."
STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."
BASE_GAME = (
    "^Below is a conversation between User and Assistant. User shows what a player of a zero-sum game sees. "
    "Assistant thinks first, step by step{where}, and then gives a valid action that helps to win within \\boxed{{}}, "
    "from where it is read.\n"
    "User: Observation: Two piles {{3, 4}}.\nTake from one.\nAssistant:"
)
BASE_QUESTION = (
    "^Below is a conversation between User and Assistant. User asks a question. "
    "Assistant thinks first, step by step{where}, and then gives the answer within \\boxed{{}}, "
    "from where it is read.\n"
    "User: Question: Two piles {{3, 4}}.\nTake from one.\nAssistant:"
)
BETWEEN = " between <think> and </think>"
CHAT = f"{OBSERVATION}\nPut your answer within \\boxed{{}}."
QWEN = f"{GOAL}\nObservation: {OBSERVATION}\n{STEP_BY_STEP}"
LLAMA = f"Current Observation: {OBSERVATION}\n{STEP_BY_STEP}"
QUESTION = f"Question: {OBSERVATION}\n{STEP_BY_STEP}"
ASSISTANT = "<s>assistant\n"


class Characters:
    """A tokenizer whose tokens are characters, with a token for the beginning and a chat template that can be read."""

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
    "r1": BASE_GAME.format(where=""),
    "r1_general": BASE_QUESTION.format(where=""),
    "octothinker": BASE_GAME.format(where=""),
    "octothinker_general": BASE_QUESTION.format(where=""),
    "chat_think": user(CHAT) + "<think>\n",
    "chat_think_general": user(f"{OBSERVATION}\n{STEP_BY_STEP}") + "<think>\n",
    "qwen3_think": user(QWEN) + "<think>\n",
    "qwen3_think_general": user(QUESTION) + "<think>\n",
    "llama_instruct_think": system(GOAL, LLAMA) + "<think>\n",
    "llama_instruct_think_general": system("You are a helpful assistant.", QUESTION) + "<think>\n",
    "r1_think": BASE_GAME.format(where=BETWEEN) + " <think>",
    "r1_think_general": BASE_QUESTION.format(where=BETWEEN) + " <think>",
    "octothinker_think": BASE_GAME.format(where=BETWEEN) + " <think>",
    "octothinker_think_general": BASE_QUESTION.format(where=BETWEEN) + " <think>",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_template_in_full(name: str) -> None:
    ids = get_template(name).encode(Characters(), OBSERVATION)
    assert "".join(map(chr, ids)) == GOLDEN[name]


def test_no_template_is_without_its_golden_text() -> None:
    assert GOLDEN.keys() == TEMPLATES.keys()


HISTORY = (("Two piles {4, 4}.", "[pile 0: 1]"), ("Look:\n{observation}", "[pile 1: 1]"))


def prompt(template: str, style: str = "dialogue", **kwargs: Any) -> str:
    return "".join(map(chr, encoder(Characters(), template, style, **kwargs)(OBSERVATION, HISTORY)))


def turns(form: str) -> str:
    """A chat template's earlier turns, every user's message in the template's form."""
    return "".join(
        f"<s>user\n{form.replace(OBSERVATION, seen)}</s><s>assistant\n\\boxed{{{action}}}</s>"
        for seen, action in HISTORY
    )


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("chat", turns(CHAT) + user(CHAT)),
        ("chat_examples", EXAMPLES + turns(CHAT) + user(CHAT)),
        ("qwen3", turns(QWEN) + user(QWEN)),
        ("qwen3_think", turns(QWEN) + user(QWEN) + "<think>\n"),
        ("llama_instruct", f"<s>system\n{GOAL}</s>{turns(LLAMA)}{user(LLAMA)}"),
        ("llama_instruct_think", f"<s>system\n{GOAL}</s>{turns(LLAMA)}{user(LLAMA)}<think>\n"),
    ],
)
def test_a_dialogue_is_a_conversation_of_several_turns(name: str, whole: str) -> None:
    """The system speaks once, and only the last answer is made to begin with reasoning."""
    assert prompt(name) == whole


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("name", ["r1", "octothinker"])
def test_a_dialogue_as_plain_text(name: str, think: bool) -> None:
    head, last = BASE_GAME.format(where=BETWEEN if think else "").split("\nUser: ")
    first, second = HISTORY
    assert prompt(name + "_think" * think) == (
        f"{head}\nUser: Observation: {first[0]}\nAssistant: \\boxed{{[pile 0: 1]}}"
        f"\nUser: Observation: {second[0]}\nAssistant: \\boxed{{[pile 1: 1]}}\nUser: {last}{' <think>' * think}"
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_the_state_alone_has_no_history_and_a_dialogue_begins_with_it(name: str) -> None:
    assert prompt(name, "state") == GOLDEN[name]
    first = encoder(Characters(), name, "dialogue")(OBSERVATION, ())
    assert "".join(map(chr, first)) == GOLDEN[name]
    assert prompt(name) != GOLDEN[name] and prompt(name).endswith(GOLDEN[name][-60:])


def test_settings_reach_the_chat_template_of_a_dialogue() -> None:
    assert prompt("chat", enable_thinking=False).endswith(f"<enable_thinking>{ASSISTANT}")


@pytest.mark.parametrize("style", ["dialog", "", None, ["state"]])
def test_an_unknown_style_names_the_known_ones(style: Any) -> None:
    with pytest.raises(ValueError, match=r"^prompt\.style=.*: unknown; known styles: state, dialogue$"):
        encoder(Characters(), "chat", style)


def test_settings_reach_the_chat_template() -> None:
    ids = get_template("chat").encode(Characters(), "x", enable_thinking=False)
    assert "".join(map(chr, ids)).endswith(f"<enable_thinking>{ASSISTANT}")


def test_spirals_names_for_forced_thinking() -> None:
    assert get_template("octothinker_enforce_thinking") is get_template("octothinker_think")
    assert get_template("octothinker_enforce_thinking_general") is get_template("octothinker_think_general")


def test_an_unknown_template_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"prompt\.template='qwen': unknown; known templates: chat, .*qwen3"):
        get_template("qwen")


def test_a_folder_without_a_tokenizer_is_named() -> None:
    empty: Any = SimpleNamespace(encode=lambda text: [])  # as transformers makes one
    with pytest.raises(ValueError, match=r"^model: holds no tokenizer, or one without words"):
        check_words(empty, "model")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("I bet. \\boxed{[bet]}", "[bet]"),
        ("\\boxed{1} or rather \\boxed{2}", "2"),
        ("\\boxed{1} or rather \\boxed{2", "1"),  # the second is cut off
        ("\\boxed{1} \\boxed{}", ""),  # the last one says nothing
        ("no box", None),
        ("\\boxed{never closed", None),
        ("", None),
        ("\\boxed{\\text{bet}}", "bet"),
        ("\\boxed{\\textbf{\\text{bet}}}", "bet"),
        ("\\boxed{\\mathrm{[Bet]}}", "[Bet]"),
        ("\\boxed{7}, no: \\boxed{\\left\\{1\\right.}", "{1."),  # an escaped brace is none
        ("\\boxed{\\{1}, 2\\}}", "{1"),
        ("\\boxed{7} or \\boxed{\\}", "7"),
        ("\\\\boxed{4}", "4"),
        ("\\boxed{\\text{a\\}b}}", "a}b"),
        ("\\boxed{\\big[4\\big], \\lbrack 5\\rbrack}", "[4], [5]"),
        ("\\boxed{\\mathbb{R}}", "\\mathbb{R}"),
        ("\\boxed{\\left[4\\right]}", "[4]"),
        ("\\boxed{\\boxed{4}}", "4"),
        ("\\boxed {4}", "4"),
        ("$\\boxed{4}$", "4"),
        ("\\boxed{$4$}", "4"),
        ("\\boxed{3\\ \\text{Wood} \\rightarrow 2~\\text{Gold}}", "3 Wood -> 2 Gold"),
        ("\\boxed{3 \\to 2}", "3 -> 2"),
        ("\\boxed{\\top}", "\\top"),
        ("{ unbalanced \\boxed{4}", "4"),
        ("} unbalanced \\boxed{4}}", "4"),
        ("\\boxed{a{b}c}", "a{b}c"),
        ("\\boxed{[8] but I choose [0]}", "[8] but I choose [0]"),  # what it means is the game's to say
        ("boxed{4}", None),
    ],
)
def test_reading_an_answer(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    "wrapped",
    [
        *(
            f"\\{name}{{bet}}"
            for name in ("text", "textbf", "textit", "textrm", "textnormal", "texttt", "textsf", "textsc")
        ),
        *(f"\\{name}{{bet}}" for name in ("mathrm", "mathbf", "mathit", "mathsf", "mathtt", "mathop", "operatorname")),
        *(f"\\{name}{{bet}}" for name in ("mbox", "hbox", "fbox", "framebox", "emph", "underline", "boldsymbol", "bm")),
        *(
            "\\operatorname*{bet}",
            "\\textcolor{red}{bet}",
            "\\colorbox{red}{bet}",
            "\\color{red} bet",
            "\\color{red}{bet}",
        ),
        *("{\\bf bet}", "{\\rm bet}", "{ \\large\\bf bet}", "\\bf{bet}", "\\bf bet", "\\Large bet", "{\\bfseries bet}"),
        *(
            "$bet$",
            "\\(bet\\)",
            "~bet~",
            "\\ bet\\,",
            "\\quad bet",
            "\\displaystyle bet",
            "\\text {bet}",
            "$\\mathrm{bet}$",
        ),
        *("\\vbox{bet}", "\\framebox[3cm][c]{bet}", "\\uuline{bet}", "\\hl{bet}", "\\MakeUppercase{bet}"),
        *("\\lowercase{bet}", "{\\em bet\\/}"),
        "\\textbf{" * 9 + "bet" + "}" * 9,
        "{\\bf \\underline{\\text{\\emph{bet}}}}",
    ],
)
def test_what_only_says_how_an_answer_looks_is_left_out(wrapped: str) -> None:
    assert extract_answer(f"\\boxed{{{wrapped}}}") == "bet"
    assert extract_answer(f"\\boxed{{[{wrapped}]}}").replace(" ", "") == "[bet]"  # type: ignore[union-attr]


def test_a_box_as_it_is_written() -> None:
    assert last_box("so \\boxed{\\frac{1}{2}\\,\\text{m}}.") == "\\frac{1}{2}\\,\\text{m}"
    assert last_box("none") is None


@pytest.mark.parametrize(
    "piece",
    [
        "\\boxed{",
        "\\boxed",
        "\\boxed{}",
        "{",
        "}",
        "{}",
        "\\text{",
        "\\text",
        "\\boxed{\\text{",
        "\\text{x",
        "{\\bf ",
        "\\color{",
        "\\textcolor{x}{",
        "\\{",
        " ",
        "\\",
        "\\left[",
        "$",
        "[",
        "🎲",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_reading_takes_linear_time(piece: str, inside: bool) -> None:
    def read(text: str) -> None:
        extract_answer(f"\\boxed{{{text}}}" if inside else text)

    assert in_linear_time(read, piece * (100_000 // len(piece)))


@pytest.mark.parametrize(
    ("response", "left"),
    [
        ("\\boxed{[4]}", ""),
        ("<think>\nthe corner\n</think>\n\\boxed{[4]} ", "the corner"),
        ("first \\boxed{[1]}, then \\boxed{\\text{[4]}}.", "first \\boxed{[1]}, then ."),
        ("no answer", "no answer"),
        ("never \\boxed{closed", "never \\boxed{closed"),
        ("", ""),
    ],
)
def test_reasoning_is_a_response_without_its_last_box_and_think_tags(response: str, left: str) -> None:
    assert reasoning(response) == left
