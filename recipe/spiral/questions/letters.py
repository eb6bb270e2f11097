"""The option that a response chose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from ..players.prompts import extract_answer

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


def chosen(response: str, choices: Sequence[str]) -> str | None:
    """The letter of the option that the last box names by letter or by text; None: it names none, or several."""
    content = extract_answer(response)
    return None if content is None else read_letter(content, choices)


def read_letter(content: str, choices: Sequence[str]) -> str | None:
    """The letter that a box's content names; None: no option, several options, or a letter with another's text."""
    content = content.replace("*", "").strip()
    texts = [_plain(choice) for choice in choices]
    by_text = [letter for letter, text in zip(ascii_uppercase, texts, strict=False) if text and text == _plain(content)]
    match = _LABEL.fullmatch(content)
    if match is None:
        return _only(by_text)
    letter, rest = match["letter"].upper(), match["rest"]
    if letter not in ascii_uppercase[: len(choices)]:
        return _only(by_text)
    if rest is None:
        return letter
    meant = texts[ascii_uppercase.index(letter)]
    if _plain(rest) == meant:
        return letter
    if by_text or not match["close"] or _ANOTHER.search(rest) or _plain(rest) in texts:
        return _only(by_text)
    return letter


def _only(letters: Sequence[str]) -> str | None:
    return letters[0] if len(letters) == 1 else None


def _plain(text: str) -> str:
    """A text as it is compared: read like a box's content, without case, white space and final full stop."""
    boxed = extract_answer(f"\\boxed{{{text}}}")
    return re.sub(r"\s+", "", boxed if boxed is not None else text).rstrip(".").casefold()
