"""The folder of a check: the report of all stages' results, as JSON and as a page, and a log of each.

It is written whenever a stage has ended, so that after a kill the next call knows what is done. Nothing stays here that
was not masked: keys, users, hosts, addresses and users' paths are nobody else's business.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recipe.spiral.storage.disk import write_whole

from .stages import Stage

ROOT = Path(__file__).resolve().parents[2]
JSON, PAGE = "gpu_report.json", "gpu_report.md"
#: Of the JSON file.
FORMAT = 2
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth")
#: Below these, paths are the system's, and say nothing of a user.
_SYSTEM = "usr|lib|lib64|bin|sbin|opt/nvidia|proc|sys|dev|etc|run/nvidia"
_PATTERNS = (
    (re.compile(r"\b(?:sk|hf|ghp|gho|ghs|glpat|xox[abpr])[-_][\w-]{16,}|\bAKIA[A-Z0-9]{16}\b"), "***"),
    (re.compile(r"(?i)((?:api_?key|token|secret|password)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&)}]{8,}"), r"\1***"),
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@"), r"\1***@"),
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]+"), "<card>"),
    # an address with its port; without one it may be a version
    (re.compile(r"\b(?!127\.|0\.0\.0\.0\b)(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"), "<address>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<mail>"),
    # a path of two parts or more, not inside of another word, a URL or a name that was put in already
    (re.compile(rf"(?<![\w/.:<>~@-])/(?!(?:{_SYSTEM})(?:/|\b))(?:[\w.+@=%-]+/)+([\w.+@=%-]+)"), r"<path>/\1"),
)
#: Accounts and machines that say nothing of anybody.
_COMMON = {"root", "user", "ubuntu", "admin", "nobody", "runner", "localhost"}


@dataclass
class Result:
    """How a stage ended: its status, the line that a person should read, seconds, checks, figures, and of one that
    failed or was ended the log's last lines."""

    name: str
    status: str
    line: str
    seconds: float = 0.0
    checks: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


def row(result: Result) -> str:
    """A stage's line in the terminal."""
    return f"{result.name:<12}{result.status:<8}{result.seconds:>7.0f} s  {result.line}"


class Report:
    """The folder's files. Results for another device are not seen."""

    def __init__(self, folder: Path, device: str, stages: Sequence[Stage]) -> None:
        self.folder, self.device, self._stages = folder, device, stages
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        written = json.loads((folder / JSON).read_bytes()) if (folder / JSON).is_file() else {}
        same = (written.get("format"), written.get("device")) == (FORMAT, device)
        self._results = {one["name"]: Result(**one) for one in written["stages"]} if same else {}
        names = {value: "***" for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}
        names |= {str(Path.home()): "~", tempfile.gettempdir(): "<tmp>", sys.prefix: "<python>"}
        names |= {str(ROOT): "<project>", str(folder): "<folder>"}
        words = {getpass.getuser(): "<user>", socket.gethostname(): "<host>"}
        names |= {word: shown for word, shown in words.items() if len(word) > 3 and word.lower() not in _COMMON}
        #: What is written in place of certain texts, of which the longer one counts.
        self._names = names
        self._texts = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def results(self) -> list[Result]:
        """The results that are there, in the stages' order."""
        return [self._results[stage.name] for stage in self._stages if stage.name in self._results]

    def forget(self, stages: Iterable[Stage]) -> None:
        """Leave out results of stages that run again."""
        for stage in stages:
            self._results.pop(stage.name, None)

    def log(self, stage: str, raw: Path) -> list[str]:
        """Write a stage's log, masked; returns its lines."""
        text = _COLOURS.sub("", raw.read_text(encoding="utf-8", errors="replace"))
        lines: list[str] = self._masked([line.rsplit("\r", 1)[-1] for line in text.split("\n") if line.strip()])
        write_whole(self.folder / "logs" / f"{stage}.log", "\n".join(lines) + "\n")
        return lines

    def write(self, result: Result) -> Result:
        """Keep a stage's result, renew the report and print a line; returns the result as it was masked."""
        masked = self._results[result.name] = Result(**self._masked(asdict(result)))
        content = {"format": FORMAT, "device": self.device, "stages": [asdict(one) for one in self.results()]}
        write_whole(self.folder / JSON, json.dumps(content, indent=1))
        write_whole(self.folder / PAGE, "\n".join(self._page()) + "\n")
        print(row(masked), flush=True)
        return masked

    def _page(self) -> list[str]:
        """What people read: what passed, what did not, and the figures."""
        results = self.results()
        counts = ", ".join(f"{count} {status}" for status, count in Counter(one.status for one in results).items())
        lines = ["# GPU check", "", f"Device: {self.device}. Of {len(self._stages)} stages: {counts}.", ""]
        if self.device == "cpu":
            lines += ["This check ran on a CPU, with smaller sizes. It says nothing of a GPU.", ""]
        lines += ["| stage | result | seconds | |", "| --- | --- | --- | --- |"]
        for one in results:
            line = " ".join(one.line.split()).replace("|", "/")
            lines.append(f"| {one.name} | {one.status} | {one.seconds:.0f} | {line} |")
        for one in results:
            lines += ["", f"## {one.name}", ""]
            lines += [f"- {check['status']}: {check['name']}: {check['detail']}" for check in one.checks]
            lines += ["", "```json", json.dumps(one.figures, indent=1), "```"]
            if one.tail:
                lines += ["", "The log's last lines:", "", "```text", *one.tail, "```"]
        return lines

    def _masked(self, value: Any) -> Any:
        """A JSON value with all texts in it masked."""
        if isinstance(value, dict):
            return {self._masked(str(name)): self._masked(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(inner) for inner in value]
        if isinstance(value, str):
            value = self._texts.sub(lambda match: self._names[match[0]], value)
            for pattern, shown in _PATTERNS:
                value = pattern.sub(shown, value)
        return value
