"""What a stage says of itself: checks, each passed, failed or skipped with its reason, and figures.

Everything is written to a file as it comes, so that a stage that hangs or is killed leaves what it found until then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recipe.spiral.storage.disk import write_whole

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
#: Of a stage whose time was over, or that somebody else has ended: neither passed nor failed.
ENDED = "ended"


class SkipStage(Exception):
    """This machine cannot run the stage; the message says why."""


class StageFailed(Exception):
    """The stage cannot go on; the message says what is wrong."""


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str = ""


@dataclass
class Probe:
    """One stage's own view.

    Attributes:
        device: ``cuda`` or ``cpu``.
        work: a folder for what the stage makes; it is removed afterwards.
        file: where checks and figures are written.
    """

    device: str
    work: Path
    file: Path
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def check(self, name: str, passed: bool, detail: str = "") -> bool:
        """Note a check; returns whether it passed."""
        self._note(Check(name, PASSED if passed else FAILED, detail))
        return passed

    def skip(self, name: str, reason: str) -> None:
        """Note a check that cannot be made here."""
        self._note(Check(name, SKIPPED, reason))

    def need(self, name: str, passed: bool, detail: str = "") -> None:
        """Note a check without which the stage cannot go on.

        Raises:
            StageFailed: it did not pass.
        """
        if not self.check(name, passed, detail):
            raise StageFailed(f"{name}: {detail}" if detail else name)

    def figure(self, name: str, value: Any) -> None:
        """Note a figure, for the report: a number, a text, or a list or dictionary of them."""
        self.figures[name] = value
        self._write()

    def _note(self, check: Check) -> None:
        self.checks.append(check)
        self._write()
        print(": ".join(filter(None, (check.status, check.name, check.detail))), flush=True)

    def _write(self) -> None:
        noted = {"checks": [asdict(check) for check in self.checks], "figures": self.figures}
        write_whole(self.file, json.dumps(noted))


def read(file: Path) -> dict[str, Any]:
    """What a stage has noted; empty where there is nothing, or nothing whole."""
    try:
        noted = json.loads(file.read_bytes())
        return {"checks": list(noted["checks"]), "figures": dict(noted["figures"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"checks": [], "figures": {}}
