"""Takes out of logs and results what is nobody else's business: keys, users, hosts, addresses and users' paths."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from recipe.spiral.processes.masking import MASK, is_secret

#: Below these, paths are the system's, and say nothing of a user.
_SYSTEM = "usr|lib|lib64|bin|sbin|opt/nvidia|proc|sys|dev|etc|run/nvidia"
#: A path of two parts or more, not inside of another word, a URL or a name that was put in already.
_PATH = re.compile(rf"(?<![\w/.:<>~@-])/(?!(?:{_SYSTEM})(?:/|\b))[\w.+@=%-]+(?:/[\w.+@=%-]+)+")
_PATTERNS = (
    # keys of services, by their forms
    (
        re.compile(r"\b(?:sk|hf|ghp|gho|ghs|glpat|xox[abpr])[-_][\w-]{16,}|\bgithub_pat_\w{16,}|\bAKIA[A-Z0-9]{16}\b"),
        MASK,
    ),
    (re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    # API_KEY=..., "token": "..."
    (
        re.compile(
            r"(?i)((?:^|[\s\"'{,(;&?])[\w-]*(?:api_?key|access_?key|auth_?token|access_?token|secret|password|passwd)"
            r"[\"']?\s*[:=]\s*[\"']?)(?!null\b|None\b|\*)[^\s\"',;&)}]{8,}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]+"), "<card>"),
    # an address with its port; without one it may be a version
    (re.compile(r"\b(?!127\.|0\.0\.0\.0\b)(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"), "<address>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<mail>"),
)
#: Accounts and hosts that say nothing of anybody, or would take ordinary words out of a text.
_COMMON = {
    "root",
    "user",
    "users",
    "ubuntu",
    "admin",
    "ray",
    "test",
    "nobody",
    "runner",
    "localhost",
    "main",
    "gpu",
    "vllm",
}
#: A shorter value is no key, and might be a part of any other word.
_SHORTEST = 8


class Masker:
    """Masks texts.

    Args:
        names: what is written in place of certain texts, paths first of all; of two that overlap the longer one counts.
    """

    def __init__(self, names: Mapping[str, str], words: Mapping[str, str] | None = None) -> None:
        known = {text: shown for text, shown in names.items() if text}
        ordered = sorted(known, key=len, reverse=True)
        self._known = known
        self._texts = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._words = words or {}
        self._word = re.compile(rf"\b(?:{'|'.join(map(re.escape, self._words))})\b") if self._words else None

    @classmethod
    def of_this_machine(cls, folder: Path, root: Path) -> Masker:
        """For this user on this machine.

        Args:
            folder: the results'.
            root: the project's.
        """
        names = {
            value: MASK
            for name, value in os.environ.items()
            if is_secret(name) and len(value) >= _SHORTEST and not value.startswith("/")
        }
        places = {
            folder: "<folder>",
            root: "<project>",
            Path(sys.prefix): "<python>",
            Path(sys.base_prefix): "<python>",
            Path(tempfile.gettempdir()): "<tmp>",
        }
        with suppress(RuntimeError):
            places[Path.home()] = "~"
        for path, shown in places.items():
            for form in {str(path), str(path.absolute()), str(path.resolve())}:
                if form.count("/") > 1 or form in ("/root", "/tmp"):
                    names.setdefault(form, shown)
        for addresses in psutil.net_if_addrs().values():
            for address in (one.address.split("%")[0] for one in addresses):
                if not address.startswith(("127.", "::1", "00:00:00:00")):
                    names[address] = "<address>"
        words = {}
        with suppress(KeyError, OSError):
            words[getpass.getuser()] = "<user>"
        host = socket.gethostname()
        words |= {host: "<host>", host.split(".")[0]: "<host>"}
        usable = {word: shown for word, shown in words.items() if len(word) > 2 and word.lower() not in _COMMON}
        return cls({text: shown for text, shown in names.items() if not text.startswith("/usr")}, usable)

    def __call__(self, text: str) -> str:
        if self._texts is not None:
            text = self._texts.sub(lambda match: self._known[match[0]], text)
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown, text)
        text = _PATH.sub(lambda match: f"<path>/{match[0].rsplit('/', 1)[1]}", text)
        return self._word.sub(lambda match: self._words[match[0]], text) if self._word is not None else text

    def all(self, value: Any) -> Any:
        """The same of a JSON value, with all texts in it."""
        if isinstance(value, dict):
            return {self(str(name)): self.all(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.all(inner) for inner in value]
        return self(value) if isinstance(value, str) else value
