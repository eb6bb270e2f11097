"""How a key may come back in an endpoint's answer: as it is, quoted, or encoded."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

#: Characters of a key below which it may be a word, and its encoded forms would be found in other text, too.
SHORTEST = 8


def key_forms(key: str) -> list[str]:
    """All forms in which the key is looked for, the longest first."""
    return sorted({form for form in (key, *_quoted(key), *_encoded(key)) if form}, key=len, reverse=True)


def _quoted(key: str) -> Iterator[str]:
    yield repr(key)[1:-1]
    yield json.dumps(key)[1:-1]
    strict = re.sub("[^0-9A-Za-z%]", lambda sign: f"%{ord(sign[0]):02X}", quote(key, safe=""))
    for percent in (quote(key, safe=""), quote_plus(key), strict):
        yield percent
        yield re.sub("%..", lambda escape: escape[0].lower(), percent)


def _encoded(key: str) -> Iterator[str]:
    if len(key) < SHORTEST:
        return
    content = key.encode()
    yield content.hex()
    yield content.hex().upper()
    for before in range(3):  # base64 depends on how many bytes, modulo 3, come before the key
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + content).decode()
            # without the characters at the ends, which neighbours have a part in
            yield text[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
