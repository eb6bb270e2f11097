"""Whether a response answers its question correctly. Mathematics is judged in a process of its own (``judge``)."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from ...extras import install
from ...players.prompts import extract_answer, last_box
from .judge import CRASH, TIME_OUT, Judge
from .question import Question

#: The reasons of verdicts that are failures of the grader.
FAILURES = (TIME_OUT, CRASH)
#: The limit by the clock, as a multiple of the limit of processor time.
_CLOCK = 4.0
#: Longer answers, in characters, are not judged.
_LONGEST = 5000
#: The most memory for mathematics, in bytes.
_MEMORY = 4 * 2**30
_REASONS = {True: "right", False: "wrong", None: "unreadable"}
#: B, (B), [B], **B**, B., option B, answer: (B). After a bracket, full stop or colon the option's text may follow.
_LABEL = re.compile(
    r"(?:the\s+)?(?:final\s+)?(?:answer|option|choice)?\s*(?:is)?\s*:?\s*"
    r"(?P<open>[(\[]?)(?P<letter>[A-Za-z])(?P<close>[)\]]?[.:,]?)(?:\s*(?P<rest>\S.*))?",
    re.IGNORECASE | re.DOTALL,
)
#: Texts after a letter that name a second letter: "and (C)", "C, D", "C"; but not the article in "a green one".
_ANOTHER = re.compile(
    r"[(\[]?\b[A-Z][)\]]|(?i:^(?:and|or|,|/|&)\s*[(\[]?[A-Z]\b|^[A-Z]\b\s*(?:$|[)\].,:;/&]|and\b|or\b))"
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a response.

    Attributes:
        reason: "right", "wrong", "no answer", "unreadable" or one of ``FAILURES``.
        answer: what was judged, the content of the box or a letter; None: there was no answer.
    """

    reason: str
    answer: str | None = None

    @property
    def correct(self) -> bool:
        return self.reason == "right"


def check_installed(setting: str, otherwise: str = "") -> None:
    """Raises ImportError: math-verify is not installed, which ``setting`` needs; ``otherwise`` is another mend."""
    if importlib.util.find_spec("math_verify") is None:
        what = f"{setting}: answers are judged by math-verify, which is not installed"
        raise ImportError(f"{what}: {install('math')}{otherwise}")


class Grader:
    """Judges answers. Any number of threads may use it. Close it, or use it as a context manager.

    Args:
        seconds: the processor time that one answer may take, so that a verdict does not depend on the machine's load.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self._judge = Judge(f"{__package__}.mathematics:same", _CLOCK * seconds, seconds, _MEMORY)

    def grade(self, question: Question, response: str) -> Verdict:
        """The verdict on a response. Only the content of its last closed box counts. Raises NotStarted."""
        box = (last_box(response) or "").strip()
        if not box:
            return Verdict("no answer")
        if not question.choices:
            return Verdict(self.compare(question.answer, box), box)
        letter = chosen(response, question.choices)
        if letter is None:
            return Verdict("unreadable", box)
        return Verdict(_REASONS[letter == question.answer], letter)

    def compare(self, reference: str, answer: str) -> str:
        """Whether two answers are the same: "right", "wrong", "unreadable", "time-out" or "crash"."""
        if reference.strip() == answer.strip():
            return "right"
        if len(answer) > _LONGEST:
            return "unreadable"
        same, problem = self._judge.ask(reference=reference, answer=answer)
        if problem:
            return TIME_OUT if problem == TIME_OUT else CRASH
        return _REASONS[same]

    def close(self) -> None:
        """End the process."""
        self._judge.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def chosen(response: str, choices: Sequence[str]) -> str | None:
    """The letter of the option that the last box names by letter or by text.

    None: it names no option, or several, or a letter with another one's text.
    """
    content = (extract_answer(response) or "").replace("*", "").strip()
    texts = dict(zip(ascii_uppercase, map(_plain, choices), strict=False))
    by_text = [letter for letter, text in texts.items() if text and text == _plain(content)]
    only = by_text[0] if len(by_text) == 1 else None
    match = _LABEL.fullmatch(content)
    if match is None or (letter := match["letter"].upper()) not in texts:
        return only
    rest = match["rest"]
    if rest is None or _plain(rest) == texts[letter]:
        return letter
    if by_text or not match["close"] or _ANOTHER.search(rest) or _plain(rest) in texts.values():
        return only
    return letter


def _plain(text: str) -> str:
    """A text as it is compared: read like a box's content, without case, white space and final full stop."""
    boxed = extract_answer(f"\\boxed{{{text}}}")
    return re.sub(r"\s+", "", boxed if boxed is not None else text).rstrip(".").casefold()
