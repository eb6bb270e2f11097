"""LaTeX that only says how a part of an answer looks, in the place of which a comparison wants marks.

Answers to questions of mathematics are written in more ways than the actions of games, so this knows more commands than
``players.prompts``.
"""

from __future__ import annotations

import re

#: Commands that only say how their argument, or what follows, looks.
_WRAPPERS = (
    r"(?:text|math)(?!bb|color)[a-z]*|[fhmv]box|(?:frame|make)box(?:\s*\[[^][{}]*\])*|emph|under(?:line|bar)|u+line|hl"
    r"|operatorname[a-z]*\*?|(?:Make)?(?i:upp|low)ercase|boldsymbol|bm|pmb|bold|ensuremath|(?:text)?color(?:box)?\s*\{[^{}]*\}"
)
_FONTS = (
    r"(?:bf|rm|it|sf|tt|sc|sl|em|cal|(?:bf|it|rm|sf|tt|sc|sl|up|md|normal)(?:series|shape|family|font)|tiny|scriptsize"
    r"|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge|(?:display|text)style)(?![a-zA-Z])|color\s*\{[^{}]*\}"
)
_TOKENS = re.compile(
    rf"(?P<wrapper>\\(?:{_WRAPPERS}|{_FONTS})\s*\{{|\{{\s*\\(?:{_FONTS})\s*)"
    rf"|(?P<font>\\(?:{_FONTS})\s*)|\\.|(?P<group>\{{)|(?P<end>\}})",
    re.DOTALL,
)


def unwrapped(content: str, begin: str = "", end: str = "") -> str:
    """A box's content with ``begin`` and ``end`` in the place of each wrapper and its closing brace."""
    done: list[str] = []
    opened: list[bool] = []
    read = 0
    for token in _TOKENS.finditer(content):
        match token.lastgroup:
            case "wrapper":
                opened.append(True)
                instead = begin
            case "end" if opened and opened.pop():
                instead = end
            case "font":
                instead = ""
            case kind:
                if kind == "group":
                    opened.append(False)
                continue
        done += content[read : token.start()], instead
        read = token.end()
    return "".join(done) + content[read:]
