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
        ValueError: it cannot be read; the message says where.
    """
    try:
        yield from _rows(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: must be in UTF-8 ({error})") from error
    except csv.Error as error:
        raise ValueError(f"{file}: no CSV ({error})") from error


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    if file.suffix == ".parquet":
        yield from _parquet(file)
    elif file.suffix == ".csv":
        limit = csv.field_size_limit(2**31 - 1)  # of the whole process
        try:
            with file.open(encoding="utf-8-sig", newline="") as cells:
                yield from csv.DictReader(cells)
        finally:
            csv.field_size_limit(limit)
    elif file.suffix == ".jsonl":
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _row(_json(line, f"{file}, line {number}"), f"{file}, line {number}")
    else:
        content = _json(file.read_text(encoding="utf-8-sig"), str(file))
        for table in ("data", "rows", "questions"):
            if isinstance(content, dict) and isinstance(content.get(table), list):
                content = content[table]
        if not isinstance(content, list):
            raise ValueError(f"{file}: must be a list of rows")
        for number, row in enumerate(content):
            yield _row(row, f"{file}, row {number}")


def _parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(file).iter_batches():
            yield from batch.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OSError) as error:  # pyarrow's are of both kinds
        raise ValueError(f"{file}: no parquet that can be read ({error})") from error


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place}: no JSON ({error})") from error


def _row(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: a row must be an object with fields, not {type(value).__name__}")
    return value
