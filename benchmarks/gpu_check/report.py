"""The page of a check, ``gpu_report.md``: what passed, what did not, and the figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def page(content: Mapping[str, Any]) -> str:
    """The page of what ``gpu_report.json`` holds."""
    results = {result["name"]: result for result in content["stages"]}
    counts = ", ".join(f"{count} {status}" for status, count in content["summary"].items() if count)
    lines = ["# GPU check", "", f"Device: {content['device']}. Stages: {counts}.", ""]
    if content["device"] == "cpu":
        lines += ["This check ran on a CPU, with smaller sizes. It says nothing of a GPU.", ""]
    lines += ["| stage | result | seconds | |", "| --- | --- | --- | --- |"]
    for name, about in content["about"].items():
        result = results.get(name, {"status": "not run", "seconds": 0.0, "line": about})
        line = " ".join(result["line"].split()).replace("|", "\\|")
        lines.append(f"| {name} | {result['status']} | {result['seconds']:.0f} | {line} |")
    for name, result in results.items():
        lines += ["", f"## {name}", "", content["about"][name], ""]
        lines += [f"- {check['status']}: {check['name']}: {check['detail']}" for check in result["checks"]]
        lines += ["", "```json", json.dumps(result["figures"], indent=1), "```"]
        if result["tail"]:
            lines += ["", f"Exit status {result['exit']}. The log's last lines:", "", "```text", *result["tail"], "```"]
    return "\n".join(lines) + "\n"
