"""A cell of a CSV file."""

import re

from ..processes.terminal import visible

_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)


def in_table(value: object) -> object:
    """A value for a CSV file: a spreadsheet takes a text that begins like a formula for one, and may obey it."""
    if not isinstance(value, str):
        return value
    text = visible(value, most_lines=1)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@") and not _NUMBER.fullmatch(text) else text
