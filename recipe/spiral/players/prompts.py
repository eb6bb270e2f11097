"""From an observation to a prompt, and from a response to an action.

A prompt holds the present observation, and in the style "dialogue" the player's own earlier observations and actions
before it: no earlier reasoning, neither one's own nor the opponent's. A response is reasoning followed by the action in
``\\boxed{}``; whatever else it says has no effect on the game.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

#: The content of a prompt: the present observation (SPIRAL's), or the player's turns so far as well.
STYLES = ("state", "dialogue")
#: A player's earlier turns in their order: what it saw, and the canonical action that it then took.
History = tuple[tuple[str, str], ...]
#: Turns an observation and the turns before it into a prompt's token ids.
Encode = Callable[[str, History], list[int]]
#: The argument of chat templates that is the date of a run's prompts, and its form.
DATE, DATE_FORM = "date_string", "%d %b %Y"

#: LaTeX commands that only say how their argument looks.
_WRAPPERS = r"(?:text|math)(?!bb|color)[a-z]*|mbox|boldsymbol|operatorname\*?"
#: What opens or closes a box, a wrapper or another group; and what is none of them, although it has a brace.
_TOKENS = re.compile(
    rf"(?P<box>\\{{1,2}}boxed\s*\{{)|(?P<wrapper>\\(?:{_WRAPPERS})\s*\{{)|\\.|(?P<group>\{{)|(?P<end>\}})", re.DOTALL
)
_ESCAPED = re.compile(r"\\([^a-zA-Z])")


class Tokenizer(Protocol):
    """The part of Hugging Face's tokenizers that is used."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, ids: list[int]) -> Any: ...

    def apply_chat_template(self, conversation: Sequence[dict[str, str]], **kwargs: Any) -> Any: ...


# -- what is read ------------------------------------------------------------------------------------------------------


def extract_answer(response: str) -> str | None:
    """The content of the last ``\\boxed{}`` of a response, without LaTeX commands; None if there is none."""
    content = last_box(response)
    if content is None:
        return None
    if "\\" in content:  # most answers have none, and this takes as long as to find the box
        wrappers = [token for opening, end in _groups(content) if opening["wrapper"] for token in (opening, end)]
        places = sorted([0, *(place for token in wrappers for place in token.span()), len(content)])
        plain = "".join(content[begin:end] for begin, end in zip(places[::2], places[1::2], strict=True))
        content = _ESCAPED.sub(_character, plain)
    return content.replace("$", "").replace("~", " ").strip()


def last_box(response: str) -> str | None:
    """The content of the last ``\\boxed{}`` of a response, unchanged; None if there is none."""
    place = place_of_box(response)
    return response[place[1] : place[2]] if place else None


def place_of_box(response: str) -> tuple[int, int, int] | None:
    """Where the last box begins, and where its content begins and ends. An empty one counts."""
    boxes = ((*opening.span(), end.start()) for opening, end in _groups(response) if opening["box"])
    return max(boxes, default=None)


def _groups(text: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """What opens and what closes each group of a text that is closed. Braces nest, and an escaped one is none. Takes
    time linear in the length."""
    opened: list[re.Match[str]] = []
    for token in _TOKENS.finditer(text):
        if token.lastgroup == "end":
            if opened:
                yield opened.pop(), token
        elif token.lastgroup:
            opened.append(token)


def _character(escaped: re.Match[str]) -> str:
    """What an escaped character stands for: LaTeX's spaces are spaces, its own parentheses begin and end formulas."""
    return " " if escaped[1] in ",;:!/ \\" else "" if escaped[1] in "()" else escaped[1]


def boxed(action: str) -> str:
    """A response that gives this action and says nothing else."""
    return f"\\boxed{{{action}}}"


# -- prompts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """How an observation becomes a conversation, or plain text for models without a chat template.

    Attributes:
        name: how the config calls it.
        user: the user's message; ``{observation}`` stands for the observation, or for the question in a
            ``_general`` template. In a plain template with all that stands before the response.
        system: the system's message, if there is one. In a plain template the text's first paragraph.
        plain: True: the prompt is text; False: the messages go through the tokenizer's chat template.
        examples: observations, or questions, and responses to them, of games that are none of ours: a conversation
            that comes before all else, for models that do not know by themselves what an answer looks like.
    """

    name: str
    user: str
    system: str | None = None
    plain: bool = False
    examples: tuple[tuple[str, str], ...] = ()

    def messages(self, observation: str, history: History = ()) -> list[dict[str, str]]:
        """The conversation: an earlier turn is the user's message and the boxed action as the assistant's."""
        messages = [{"role": "system", "content": self.system}] if self.system is not None else []
        for seen, response in (*self.examples, *((seen, boxed(action)) for seen, action in history)):
            messages.append({"role": "user", "content": self._user(seen)})
            messages.append({"role": "assistant", "content": response})
        return [*messages, {"role": "user", "content": self._user(observation)}]

    def text(self, observation: str, history: History = ()) -> str:
        """A plain template's prompt: the same conversation, a line for what is asked with its response."""
        ends = {"system": "\n", "user": " ", "assistant": "\n"}
        said = (message["content"] + ends[message["role"]] for message in self.messages(observation, history))
        return "".join(said).removesuffix(" ")

    def encode(
        self, tokenizer: Tokenizer, observation: str, history: History = (), **chat_template_kwargs: Any
    ) -> list[int]:
        """The prompt's token ids, ready for the model to go on from.

        Raises:
            ValueError: the tokenizer's chat template does not go with this one; the message names one that does.
        """
        if self.plain:
            ids = tokenizer.encode(self.text(observation, history), add_special_tokens=True)
            return list(ids[:-1] if _ends(tokenizer, ids) else ids)  # some tokenizers end each text
        try:
            return conversation_ids(tokenizer, self.messages(observation, history), chat_template_kwargs)
        except ValueError as error:
            raise ValueError(f"{error}; take prompt.template=octothinker") from error

    def _user(self, observation: str) -> str:
        # replace() and not format(): observations contain braces
        return self.user.replace("{observation}", observation)


def _ends(tokenizer: Tokenizer, ids: list[int]) -> bool:
    """Whether the last token is the one that ends a response."""
    return ids[-1:] == [getattr(tokenizer, "eos_token_id", None)]


def tells_the_date(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer's chat template writes the date of the day on which it is used into each prompt."""
    return "strftime_now" in str(getattr(tokenizer, "chat_template", None))


def conversation_ids(tokenizer: Tokenizer, messages: Sequence[dict[str, str]], kwargs: Mapping[str, Any]) -> list[int]:
    """The token ids of a conversation as it is, with what begins the response. The template's ``date_string`` holds for
    all dates that it tells.

    Raises:
        ValueError: the tokenizer's chat template, which is a program, makes no prompt of it.
    """
    if day := kwargs.get(DATE):
        kwargs = {**kwargs, "strftime_now": datetime.strptime(day, DATE_FORM).strftime}
    try:
        ids = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **kwargs
        )
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error
    if _ends(tokenizer, ids):
        raise ValueError("the model's chat template ends the prompt with the token that ends a response")
    return list(ids)


def check_words(tokenizer: Tokenizer, place: str) -> None:
    """Raises ValueError: there is no tokenizer, where transformers makes an empty one; ``place`` says whose it is."""
    if not tokenizer.encode("0"):
        raise ValueError(f"{place}: holds no tokenizer, or one without words; put the model's own there")


_GOAL = "You are playing a two-player zero-sum game. Make valid actions to win."
_SHORT = "{observation}\nPut your answer within \\boxed{}."
_LONG = "{observation}\nPlease reason step by step, and put your final answer within \\boxed{}."
#: Made-up exchanges: an action in a box and nothing besides, once the second of those that there are, once the first.
_EXAMPLES = (
    (
        "Rock, paper, scissors. Both players choose at the same time; rock beats scissors, scissors beat paper, paper "
        "beats rock.\nAnswer with [rock], [paper] or [scissors].",
        boxed("[paper]"),
    ),
    (
        "Matching pennies. Both players show a side of a coin. You win if the sides are the same.\nSo far: you "
        "[heads], opponent [tails]\nAnswer with [heads] or [tails].",
        boxed("[heads]"),
    ),
)
_EXAMPLE_QUESTIONS = (
    ("What is 3 + 4 * 2?", "4 * 2 is 8, and 3 + 8 is 11. The answer is " + boxed("11") + "."),
    ("A bag holds 12 apples. A third of them are red. How many are not?", f"4 are red, and 12 - 4 is {boxed('8')}."),
)
#: For base models: a conversation as text, with who is speaking, what is asked, and how the answer is to be given.
_CONVERSATION = (
    "Below is a conversation between User and Assistant. {} Assistant thinks first, step by step, and then gives {} "
    "within \\boxed{{}}, from where it is read."
)
_OF_GAMES = _CONVERSATION.format(
    "User shows what a player of a zero-sum game sees.", "a valid action that helps to win"
)
_OF_QUESTIONS = _CONVERSATION.format("User asks a question.", "the answer")

#: By name; a name with "_general" is the form for questions.
TEMPLATES = {
    template.name: template
    for template in (
        # The observation as it is, with one line on the answer's form: short, for small models and instruct models.
        Template("chat", _SHORT),
        Template("chat_general", _LONG),
        # After two examples: for models so small that they would not answer in that form otherwise.
        Template("chat_examples", _SHORT, examples=_EXAMPLES),
        Template("chat_examples_general", _LONG, examples=_EXAMPLE_QUESTIONS),
        # SPIRAL's templates (arXiv 2506.24119, appendix), in its wording.
        Template("qwen3", f"{_GOAL}\nObservation: {_LONG}"),
        Template("qwen3_general", f"Question: {_LONG}"),
        Template("llama_instruct", f"Current Observation: {_LONG}", system=_GOAL),
        Template("llama_instruct_general", f"Question: {_LONG}", system="You are a helpful assistant."),
        # For base models whose tokenizer has no chat template: plain text.
        Template("octothinker", "User: Observation: {observation}\nAssistant:", system=_OF_GAMES, plain=True),
        Template("octothinker_general", "User: Question: {observation}\nAssistant:", _OF_QUESTIONS, plain=True),
    )
}


def get_template(name: str, setting: str = "prompt.template") -> Template:
    """The template of that name; a ``ValueError`` names the setting and lists those that there are."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    raise ValueError(f"{setting}={name!r}: unknown; known templates: {', '.join(sorted(TEMPLATES))}")


def general_template(name: str) -> Template:
    """A template's form for questions: "qwen3" -> "qwen3_general"."""
    return get_template(name if name.endswith("_general") else f"{name}_general")


def check_style(style: object, setting: str = "prompt.style") -> None:
    """A ``ValueError`` if there is no such style; it names the setting and those that there are."""
    if style not in STYLES:
        raise ValueError(f"{setting}={style!r}: unknown; known styles: {', '.join(STYLES)}")


def encoder(tokenizer: Tokenizer, template: str, style: str, **chat_template_kwargs: Any) -> Encode:
    """How a policy's prompts are made; the style "state" leaves the earlier turns out. No such template or style is a
    ``ValueError``."""
    check_style(style)
    known = get_template(template)

    @lru_cache(1024)  # games that are played side by side have many prompts alike
    def ids(observation: str, shown: History) -> tuple[int, ...]:
        return tuple(known.encode(tokenizer, observation, shown, **chat_template_kwargs))

    return lambda observation, history: list(ids(observation, tuple(history) if style == "dialogue" else ()))
