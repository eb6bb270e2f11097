"""What requests to an endpoint use, and the file that keeps count of it for all processes of a run.

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

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.response_tokens + other.response_tokens,
            sum(costs) if costs else None,
            self.estimated or other.estimated,
        )


class Costs:
    """What endpoints have cost so far, by their names; without a file, what this process has spent."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._read = 0  # bytes
        self._spent: dict[str, Usage] = {}

    def add(self, name: str, usage: Usage) -> None:
        """Count a request of an endpoint."""
        if self._file is None:
            self._spent[name] = self._spent.get(name, Usage()) + usage
            return
        line = json.dumps({"name": name, **asdict(usage)}) + "\n"
        with self._file.open("ab", buffering=0) as file:
            file.write(line.encode())  # at once: no other process writes into a line

    def of(self, name: str) -> Usage:
        """What an endpoint has cost.

        Raises:
            ValueError: a line of the file is damaged. To count that as nothing might spend the budget again.
        """
        if self._file is not None and self._file.is_file():
            with self._file.open("rb") as file:
                file.seek(self._read)
                lines, _, _ = file.read().rpartition(b"\n")
            for line in lines.splitlines():
                try:
                    entry = json.loads(line)
                    of, usage = str(entry.pop("name")), Usage(**entry)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    raise ValueError(
                        f"{self._file}: a line is damaged ({error}); mend it or remove the file"
                    ) from error
                self._spent[of] = self._spent.get(of, Usage()) + usage
            self._read += len(lines) + 1 if lines else 0
        return self._spent.get(name, Usage())
