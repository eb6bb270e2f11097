"""The stages in their order, which is that of evidence a minute, and what a stage notes while it runs."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from recipe.spiral.storage.disk import write_whole

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
#: Of a stage whose time was over, or that was not begun or interrupted: neither passed nor failed.
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
        alone: nothing may run beside it: it measures speed, or it is vital.
        vital: without it nothing after it can work.
    """

    name: str
    function: str
    least: float
    limit: float
    alone: bool = False
    vital: bool = False


#: ``least`` is from runs on a GPU, but for ``two_cards``: a training takes 150 s and more until its first step.
STAGES = (
    Stage("machine", f"{__package__}.machine:machine", 20, 60, alone=True, vital=True),
    Stage("imports", f"{__package__}.machine:imports", 20, 600, alone=True, vital=True),
    Stage("vllm_v2", f"{__package__}.engine:v2", 150, 600),
    Stage("train", f"{__package__}.training:train", 330, 900),
    Stage("vllm_v1", f"{__package__}.engine:v1", 150, 900),
    Stage("lora", f"{__package__}.training:lora", 260, 900),
    Stage("fp32", f"{__package__}.training:fp32", 160, 600),
    Stage("two_cards", f"{__package__}.training:two_cards", 200, 900),
    Stage("speed", f"{__package__}.speed:speed", 400, 1200, alone=True),
)


@dataclass
class Probe:
    """One stage's own view: its device (``cuda`` or ``cpu``), a folder for what it makes, and what it has noted.

    Checks are passed or failed; figures are numbers, texts, or lists or dictionaries of them. All is written to a file
    as it comes, so that a stage that hangs or is killed leaves what it found until then.
    """

    device: str
    work: Path
    checks: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def hardware(self) -> str:
        """The recipe's name for the device."""
        return "cpu" if self.on_cpu else "gpu"

    def check(self, name: str, passed: bool, detail: str = "") -> bool:
        """Note a check; returns whether it passed."""
        status = PASSED if passed else FAILED
        self.checks.append({"name": name, "status": status, "detail": detail})
        self._write()
        print(": ".join(filter(None, (status, name, detail))), flush=True)
        return passed

    def need(self, name: str, passed: bool, detail: str = "") -> None:
        """Note a check without which the stage cannot go on: it ends if it did not pass."""
        if not self.check(name, passed, detail):
            sys.exit(1)

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """An error in the block is a failed check."""
        try:
            yield
        except Exception as error:  # a library's, a compiler's or a driver's own
            traceback.print_exc()
            self.check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")

    def figure(self, name: str, value: Any) -> None:
        self.figures[name] = value
        self._write()

    def skip(self, reason: str) -> NoReturn:
        """End the stage, which this machine cannot run."""
        self._write(reason)
        sys.exit(0)

    def _write(self, skipped: str = "") -> None:
        noted = {"checks": self.checks, "figures": self.figures, "skipped": skipped}
        write_whole(self.work / NOTED, json.dumps(noted))
