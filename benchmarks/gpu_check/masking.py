"""Takes out of logs and results what is nobody else's business: keys, users, hosts, addresses and users' paths."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MASK = "***"
_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth")
#: Below these, paths are the system's, and say nothing of a user.
_SYSTEM = "usr|lib|lib64|bin|sbin|opt/nvidia|proc|sys|dev|etc|run/nvidia"
_PATTERNS = (
    (re.compile(r"\b(?:sk|hf|ghp|gho|ghs|glpat|xox[abpr])[-_][\w-]{16,}|\bAKIA[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"(?i)((?:api_?key|token|secret|password)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&)}]{8,}"), rf"\1{MASK}"),
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]+"), "<card>"),
    # an address with its port; without one it may be a version
    (re.compile(r"\b(?!127\.|0\.0\.0\.0\b)(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"), "<address>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<mail>"),
    # a path of two parts or more, not inside of another word, a URL or a name that was put in already
    (re.compile(rf"(?<![\w/.:<>~@-])/(?!(?:{_SYSTEM})(?:/|\b))(?:[\w.+@=%-]+/)+([\w.+@=%-]+)"), r"<path>/\1"),
)
#: Accounts that say nothing of anybody.
_COMMON = {"root", "user", "ubuntu", "admin", "ray", "nobody", "runner", "localhost"}


class Masker:
    """Masks texts: ``names`` has what is written in place of certain texts, of which the longer one counts."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = {text: shown for text, shown in names.items() if text}
        ordered = sorted(self._names, key=len, reverse=True)
        self._texts = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")

    @classmethod
    def of_this_machine(cls, folder: Path, root: Path) -> Masker:
        """For this user on this machine; ``folder`` is the results', ``root`` the project's."""
        names = {value: MASK for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}
        names |= {str(Path.home()): "~", tempfile.gettempdir(): "<tmp>", sys.prefix: "<python>"}
        names |= {str(root): "<project>", str(folder): "<folder>"}
        words = {getpass.getuser(): "<user>", socket.gethostname(): "<host>"}
        names |= {word: shown for word, shown in words.items() if len(word) > 3 and word.lower() not in _COMMON}
        return cls(names)

    def __call__(self, text: str) -> str:
        text = self._texts.sub(lambda match: self._names[match[0]], text)
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown, text)
        return text

    def all(self, value: Any) -> Any:
        """The same of a JSON value, with all texts in it."""
        if isinstance(value, dict):
            return {self(str(name)): self.all(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.all(inner) for inner in value]
        return self(value) if isinstance(value, str) else value
