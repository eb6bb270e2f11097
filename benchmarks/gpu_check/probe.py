"""What a stage says of itself: checks, each passed, failed or skipped with its reason, and figures.

Everything is written to a file as it comes, so that a stage that hangs or is killed leaves what it found until then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
#: Of a stage whose time was over, or that somebody else has ended: neither passed nor failed.
ENDED = "ended"
NOTED = "noted.json"


class SkipStage(Exception):
    """This machine cannot run the stage; the message says why."""


class StageFailed(Exception):
    """The stage cannot go on; the message says what is wrong."""


@dataclass
class Probe:
    """One stage's own view: its device (``cuda`` or ``cpu``), a folder for what it makes, and what it has noted."""

    device: str
    work: Path
    checks: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def check(self, name: str, passed: bool, detail: str = "") -> bool:
        """Note a check; returns whether it passed."""
        self._note(name, PASSED if passed else FAILED, detail)
        return passed

    def skip(self, name: str, reason: str) -> None:
        """Note a check that cannot be made here."""
        self._note(name, SKIPPED, reason)

    def need(self, name: str, passed: bool, detail: str = "") -> None:
        """Note a check without which the stage cannot go on: StageFailed if it did not pass."""
        if not self.check(name, passed, detail):
            raise StageFailed(f"{name}: {detail}" if detail else name)

    def figure(self, name: str, value: Any) -> None:
        """Note a figure: a number, a text, or a list or dictionary of them."""
        self.figures[name] = value
        self._write()

    def _note(self, name: str, status: str, detail: str) -> None:
        self.checks.append({"name": name, "status": status, "detail": detail})
        self._write()
        print(": ".join(filter(None, (status, name, detail))), flush=True)

    def _write(self) -> None:
        new = self.work / f"{NOTED}.new"
        new.write_text(json.dumps({"checks": self.checks, "figures": self.figures}), encoding="utf-8")
        new.replace(self.work / NOTED)
