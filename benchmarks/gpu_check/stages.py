"""The stages in their order, which is that of evidence a minute, and what a stage notes while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
#: Of a stage whose time was over, or that somebody else has ended: neither passed nor failed.
ENDED = "ended"
#: The file of what a stage notes.
NOTED = "noted.json"


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: as ``--stage`` names it.
        function: module:function, which gets a ``Probe``.
        least: the seconds in which it should show something; with less left it is not begun.
        limit: the seconds that it may take.
        vital: without it nothing after it can work.
        alone: it measures speed, so that nothing may run beside it.
    """

    name: str
    function: str
    least: float
    limit: float
    vital: bool = False
    alone: bool = False


#: ``least`` is from runs on a GPU, but for ``two_cards``: a training takes 150 s and more until its first step.
STAGES = (
    Stage("machine", f"{__package__}.machine:machine", 5, 60, vital=True),
    Stage("imports", f"{__package__}.machine:imports", 20, 600, vital=True),
    Stage("vllm_v2", f"{__package__}.engine:v2", 150, 600),
    Stage("train", f"{__package__}.training:train", 330, 900),
    Stage("vllm_v1", f"{__package__}.engine:v1", 150, 900),
    Stage("lora", f"{__package__}.training:lora", 260, 900),
    Stage("fp32", f"{__package__}.training:fp32", 160, 600),
    Stage("two_cards", f"{__package__}.training:two_cards", 200, 900),
    Stage("speed", f"{__package__}.speed:speed", 400, 1200, alone=True),
)


class SkipStage(Exception):
    """This machine cannot run the stage; the message says why."""


class StageFailed(Exception):
    """The stage cannot go on; the message says what is wrong."""


@dataclass
class Probe:
    """One stage's own view: its device (``cuda`` or ``cpu``), a folder for what it makes, and what it has noted.

    Checks are passed, failed or skipped, with a reason; figures are numbers, texts, or lists or dictionaries of them.
    All is written to a file as it comes, so that a stage that hangs or is killed leaves what it found until then.
    """

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
