"""Files that grow by whole lines: what people read, and a run's metrics."""

from __future__ import annotations

import os
from pathlib import Path

from .disk import is_full


class LineFile:
    """Appends lines. On a full disk they are kept and written with the next one; whoever writes goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaid: list[str] = []

    def append(self, line: str) -> None:
        """Append a line, whole or not at all, after what an earlier process may have left half-written."""
        self._unsaid.append(line)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b", buffering=0) as file:
                while self._unsaid:
                    end = file.seek(0, os.SEEK_END)
                    text = f"{self._unsaid[0]}\n".encode()
                    if end and _last_byte(file.fileno(), end) != b"\n":
                        text = b"\n" + text
                    if (file.write(text) or 0) < len(text):  # as much as there was room for
                        file.truncate(end)
                        break
                    del self._unsaid[0]
        except OSError as error:
            if not is_full(error):
                raise


def _last_byte(descriptor: int, end: int) -> bytes:
    return os.pread(descriptor, 1, end - 1)
