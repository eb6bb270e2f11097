"""The rows of files of questions: JSON lines, JSON, parquet and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")


def read_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, by how its name ends.

    Raises:
        ValueError: it cannot be read, or a row has no fields; the message says where.
    """
    number = 0
    try:
        for row in _rows(file):
            if not isinstance(row, Mapping):
                raise ValueError(f"a row must be an object with fields, not {type(row).__name__}")
            yield row
            number += 1
    # RuntimeError: JSON is too deep, or pyarrow does not know a type
    except (ValueError, OSError, RuntimeError, csv.Error) as error:
        raise ValueError(f"{file}: cannot be read after {number} rows ({error})") from error


def _rows(file: Path) -> Iterator[Any]:
    if file.suffix == ".parquet":
        from pyarrow import parquet

        for batch in parquet.ParquetFile(file).iter_batches():
            yield from batch.to_pylist(maps_as_pydicts="lossy")
        return
    with file.open(encoding="utf-8-sig", newline="") as text:
        if file.suffix == ".csv":
            limit = csv.field_size_limit(2**31 - 1)  # of the whole process
            try:
                yield from csv.DictReader(text)
            finally:
                csv.field_size_limit(limit)
        elif file.suffix == ".jsonl":
            yield from (json.loads(line) for line in text if line.strip())
        else:
            content = json.load(text)
            for table in ("data", "rows", "questions"):
                if isinstance(content, dict) and isinstance(content.get(table), list):
                    content = content[table]
            if not isinstance(content, list):
                raise ValueError("must be a list of rows")
            yield from content
