"""The page of a check, ``gpu_report.md``: what passed, what did not, and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .probe import FAILED, SKIPPED


def page(content: Mapping[str, Any]) -> str:
    """The page.

    Args:
        content: what ``gpu_report.json`` holds.
    """
    results = {result["name"]: result for result in content["stages"]}
    counts = ", ".join(f"{count} {status}" for status, count in content["summary"].items() if count)
    lines = ["# GPU check", "", f"Device: {content['device']}. Stages: {counts}.", ""]
    if content["device"] == "cpu":
        lines += [
            "This check ran on a CPU, with smaller sizes. It says that the check itself works, and nothing of a GPU.",
            "",
        ]
    lines += ["| stage | result | seconds | |", "| --- | --- | --- | --- |"]
    for name, about in content["about"].items():
        result = results.get(name)
        cells = [name, "not run", "", about]
        if result is not None:
            cells = [name, result["status"], f"{result['seconds']:.0f}", result["line"]]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    for name, about in content["about"].items():
        if (result := results.get(name)) is not None:
            lines += ["", *_details(about, result)]
    return "\n".join(lines) + "\n"


def _details(about: str, result: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {result['name']}"
    yield ""
    yield f"{about[0].upper()}{about[1:]}. {result['line']}"
    if result["checks"]:
        yield ""
    for check in result["checks"]:
        mark = {FAILED: "**failed**", SKIPPED: "skipped"}.get(check["status"], check["status"])
        yield f"- {': '.join(filter(None, (mark, check['name'], _plain(check['detail']))))}"
    tables = {name: value for name, value in result["figures"].items() if _is_table(value)}
    if rows := list(_rows({name: value for name, value in result["figures"].items() if name not in tables})):
        yield from ("", "| figure | value |", "| --- | --- |")
        yield from (f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)
    for name, table in tables.items():
        columns = list(dict.fromkeys(column for row in table.values() for column in row))
        yield from ("", f"| {' | '.join(map(_cell, [name, *columns]))} |", f"|{' --- |' * (1 + len(columns))}")
        for row, cells in table.items():
            shown = [_number(cells[column]) if column in cells else "" for column in columns]
            yield f"| {' | '.join(map(_cell, [row, *shown]))} |"
    if result["tail"]:
        yield from ("", f"Exit status {result['exit']}. The log's last lines:", "", "```text")
        yield from (line.replace("```", "'''") for line in result["tail"])
        yield "```"


def _is_table(figure: Any) -> bool:
    """Whether it has rows by their names, each with cells by the names of their columns."""
    return isinstance(figure, Mapping) and all(isinstance(row, Mapping) for row in figure.values())


def _rows(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Figures by their names; those in dictionaries with the dictionary's name before their own."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{name}: ")
        else:
            values = value if isinstance(value, list) else [value]
            yield f"{prefix}{name}", ", ".join(map(_number, values))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")
