"""The files of a report: pages that need no server, and data that they load by script tags.

A page that is opened from the disk may load scripts and nothing else. So all data lie in scripts that make one call
with one value. Text of models is nowhere but in these values, as JSON in ASCII without a "<"; games are compressed as
well. The pages put it on the screen as text, never as HTML.
"""

from __future__ import annotations

import base64
import gzip
import importlib.resources
import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from ...extras import install
from ...storage.disk import write_whole
from ..drawing import PAGE_FILES

ASSETS = "assets"
DATA = "data"
_PAGES = Path(__file__).parent / "pages"
#: The pages by their files' names, with their titles. All have the same scripts.
PAGES = {"index": "Overview", "games": "Games", "game": "Game", "evaluation": "Evaluation"}
#: Fast; stronger compression makes games a tenth smaller and takes three times as long.
_LEVEL = 4


class Bundle:
    """The folder of a report, which is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun = False

    def begin(self) -> None:
        """Copy the pages and what they share, the first time: a watched report is renewed every few seconds.

        Raises:
            ImportError: plotly, whose wheel has the charts' library, is not installed.
            FileExistsError: the folder has a page that no report has made.
        """
        if self._begun:
            return
        index = self.folder / "index.html"
        if index.is_file() and not (self.folder / ASSETS).is_dir():
            raise FileExistsError(f"{index}: no report has made this; give another --out, or remove it")
        if find_spec("plotly") is None:
            raise ImportError(f"the charts need plotly: {install('report')}")
        charts = importlib.resources.files("plotly") / "package_data" / "plotly.min.js"
        for file in [*_PAGES.glob("*.js"), *_PAGES.glob("*.css"), *PAGE_FILES, charts]:
            self._replace(self.folder / ASSETS / file.name, file.read_text(encoding="utf-8"))
        template = Template((_PAGES / "page.html").read_text(encoding="utf-8"))
        for name, title in PAGES.items():
            self._replace(self.folder / f"{name}.html", template.substitute(name=name, title=title))
        self._begun = True

    def write(self, name: str, value: Any) -> None:
        """Write a value to ``data/<name>.js``."""
        self._write(name, to_json(value))

    def write_packed(self, name: str, json_text: str) -> None:
        """Write a value that is JSON already, compressed."""
        packed = gzip.compress(json_text.encode("ascii"), _LEVEL, mtime=0)
        self._write(name, f'"{base64.b64encode(packed).decode("ascii")}"')

    def _write(self, name: str, value: str) -> None:
        self._replace(self.file(name), f"{_call(name)}{value});\n")

    def _replace(self, file: Path, text: str) -> None:
        """Write a file that whoever reads it sees as it was or as it is. Not waiting for the disk, as records do: a
        report can be made again."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text, durable=False)

    def read(self, name: str) -> Any:
        """A value that ``write`` wrote; None where there is none that can be read."""
        try:
            text = self.file(name).read_bytes().decode("ascii")
            return json.loads(text.removeprefix(_call(name)).removesuffix(");\n"))
        except (OSError, ValueError):
            return None

    def file(self, name: str) -> Path:
        return self.folder / DATA / f"{name}.js"


def to_json(value: Any) -> str:
    """JSON in ASCII that stands in a script as it is, wherever that stands; numbers that are not finite are null."""
    text = json.dumps(_finite(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def is_inside(folder: Path, file: Path) -> bool:
    """Whether a file is a regular one that lies in the folder, wherever links lead: a report is sent to others, and a
    link may lead to anything that its maker can read."""
    return file.is_file() and file.resolve().is_relative_to(folder.resolve())


def _call(name: str) -> str:
    return f'SPIRAL.take("{name}",'


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
