"""What requests to endpoints use, and the file that keeps count of it for all processes of a run.

A budget holds for the whole run, restarts included. So every process adds a line to the file after each request, and
reads what the others have added before the next one. A run oversteps its budget by the requests under way, no more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

#: The file's name, in the folder of a run or of an evaluation.
COSTS = "spent.jsonl"


@dataclass(frozen=True)
class Usage:
    """What was asked of an endpoint that is paid for.

    Attributes:
        prompt_tokens: tokens that were read.
        response_tokens: tokens that were written, hidden reasoning included.
        cost: in US dollars; None where no prices are known.
        estimated: whether the endpoint did not count, and the numbers are estimates from the texts' lengths.
    """

    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


class Costs:
    """What endpoints have cost so far, by their names; without a file, what this process has spent."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._read = 0  # bytes
        self._spent: dict[str, tuple[int, float]] = {}

    def add(self, name: str, usage: Usage) -> None:
        """Count a request of an endpoint."""
        if self._file is None:
            self._add(name, usage)
            return
        with self._file.open("ab", buffering=0) as file:  # at once: no other process writes into a line
            file.write((json.dumps({"name": name, **asdict(usage)}) + "\n").encode())

    def of(self, name: str) -> tuple[int, float]:
        """What an endpoint has cost: tokens, and US dollars as far as prices are known.

        Raises:
            ValueError: a line of the file is damaged. To count that as nothing might spend the budget again.
        """
        if self._file is not None and self._file.is_file():
            with self._file.open("rb") as file:
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
            for line in whole.splitlines():
                try:
                    entry = json.loads(line)
                    self._add(entry.pop("name"), Usage(**entry))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise ValueError(f"{self._file}: a damaged line ({error}); mend it or remove the file") from error
            self._read += len(whole) + 1 if whole else 0
        return self._spent.get(name, (0, 0.0))

    def _add(self, name: str, usage: Usage) -> None:
        tokens, dollars = self._spent.get(name, (0, 0.0))
        tokens += usage.prompt_tokens + usage.response_tokens
        self._spent[name] = tokens, dollars + (usage.cost or 0.0)
