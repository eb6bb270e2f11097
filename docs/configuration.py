"""Writes configuration.md: the keys in the YAML files of recipe/spiral/config that people set.

python docs/configuration.py            writes the page
python docs/configuration.py --check    writes nothing; exit status 1 where the page is not current
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parent
CONFIG = DOCS.parent / "recipe" / "spiral" / "config"
PAGE = DOCS / "configuration.md"
#: Folders of presets, which set keys that are defined elsewhere: they are listed by their first comment.
PRESETS = ("experiment", "sweep")

#: Groups whose options fit a run to a machine or a model, with many keys that nobody sets.
MACHINES = ("hardware", "engine", "model")

#: What the comment of a key says that nobody sets: it wires verl's keys together.
WIRING = re.compile(r"Do not (set|change) it|Set \S+ instead")

HEAD = """# Configuration

Made from the comments of the YAML files in `recipe/spiral/config` by `python docs/configuration.py`; do not edit.

Each key stands with its default before `model` and `hardware`, as it is set on the command line: `python -m
recipe.spiral.main_spiral games=[Nim] data.train_batch_size=64`. A key without a default has one that is computed. A
preset is added with a plus: `+experiment=kuhn`; the settings of one, with reasons, are in its file. `--cfg job
--resolve` prints a run's configuration.

All keys of verl's `ppo_trainer` can be set as well. Keys that follow others, or wire verl's together, are left out.
"""


@dataclass(frozen=True)
class Comment:
    """A comment and the line of the key below it, which tells two comments of the same words apart."""

    text: str = ""
    line: int = -1


@dataclass(frozen=True)
class Key:
    """A key by its dotted name. A section (a mapping) has no default."""

    name: str
    default: str
    comment: Comment

    @property
    def wiring(self) -> bool:
        """Whether it is none that people set: by its comment, or because it names a class or a file of ours, or is a
        link to another key."""
        ours = any(part in self.default for part in ("recipe.spiral.", "pkg://", "${spiral_file:"))
        link = re.fullmatch(r"\$\{[\w.]+\}", self.default) is not None
        return ours or link or self.name.startswith("hydra.") or bool(WIRING.search(self.comment.text))

    @property
    def shown(self) -> str:
        """As it is typed; without its default where that is computed."""
        computed = "${spiral_" in self.default or not self.default
        return f"`{self.name}`" if computed else f"`{self.name}={self.default.replace(', ', ',')}`"


class File:
    """A YAML file with the comments that PyYAML drops: read from the lines above each key.

    Keys that follow each other without an empty line share the comment above the first of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = path.read_text(encoding="utf-8")
        self._lines = self._text.splitlines()
        end = next((i for i, line in enumerate(self._lines) if not line.startswith("#")), len(self._lines))
        self._header_end = end
        self.header = _joined([line for line in self._lines[:end] if "@package" not in line])
        self._root = yaml.compose(self._text)
        self.keys = list(self._keys(self._root, "")) if isinstance(self._root, yaml.MappingNode) else []

    def groups(self) -> Iterator[tuple[str, str, str]]:
        """The groups of the defaults list that are folders here: name, the option that is taken, comment."""
        for key, value in self._root.value:
            for item in value.value if key.value == "defaults" else ():
                if isinstance(item, yaml.MappingNode):
                    group, option = item.value[0]
                    if (self.path.parent / group.value).is_dir():
                        yield group.value, option.value, self._comment(item.start_mark.line).text

    def _keys(self, node: yaml.MappingNode, prefix: str, parent: Comment | None = None) -> Iterator[Key]:
        """The keys of a mapping, those of its sections among them.

        Args:
            parent: the comment directly above the mapping's own key, for children that follow without an empty line.
        """
        end, shared = (parent.line, parent) if parent else (-2, None)
        for key, value in node.value:
            line, name = key.start_mark.line, f"{prefix}{key.value}"
            comment = self._comment(line)
            if not comment.text and shared and end == line - 1:
                comment = shared
            if name == "defaults":
                continue
            if isinstance(value, yaml.MappingNode) and not value.flow_style:
                own = self._comment(line)
                yield Key(name, "", own)
                yield from self._keys(value, f"{name}.", own if own.text else None)
                shared = None
            else:
                default = self._text[value.start_mark.index : value.end_mark.index]
                yield Key(name, " ".join(default.split()), comment)
                end, shared = value.end_mark.line, comment if comment.text else None

    def _comment(self, line: int) -> Comment:
        """The comment directly above a line."""
        start = line
        while start > self._header_end and self._lines[start - 1].lstrip().startswith("#"):
            start -= 1
        return Comment(_joined(self._lines[start:line]), line) if start < line else Comment()


def _joined(lines: list[str]) -> str:
    """Comment lines as one; a line that is indented inside the comment is code."""
    words = []
    for line in lines:
        text = line.lstrip().removeprefix("#")
        words.append(f"`{text.strip()}`" if text.startswith("   ") else text.strip())
    return " ".join(filter(None, words))


def entries(keys: list[Key]) -> str:
    """A line for each key; those that share a comment stand in one. A section has a line if its comment is its own."""
    rows: list[list[Key]] = []
    for key in keys:
        if key.wiring:
            continue
        if rows and key.comment.text and rows[-1][0].comment == key.comment:
            rows[-1].append(key)
        elif key.default or key.comment.text:
            rows.append([key])
    lines = []
    for row in rows:
        names = ", ".join(key.shown for key in [key for key in row if key.default] or row)
        meaning = _plain(row[0].comment.text)
        lines.append(f"- {names}: {meaning}" if meaning else f"- {names}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown does not take for HTML."""
    return text.replace("<", "&lt;")


def _option(file: File) -> str:
    """What an option of a group sets; its file says why, and has those of a machine."""
    if file.path.parent.name in MACHINES:
        return f"{_plain(file.header)} Settings: `{file.path.relative_to(CONFIG.parents[2])}`."
    leaves = [key for key in file.keys if key.default and not key.wiring]
    variables = [f"`{key.name.split('.')[-1]}`" for key in leaves if key.name.startswith("environment.")]
    keys = [key.shown for key in leaves if not key.name.startswith("environment.")]
    parts = [_plain(file.header), f"Sets {', '.join(keys)}." if keys else ""]
    parts.append(f"Environment variables, unless they are set: {', '.join(variables)}." if variables else "")
    return " ".join(filter(None, parts))


def _sections(keys: list[Key]) -> Iterator[tuple[str, str, list[Key]]]:
    """Title, comment and keys of each section; keys at the top of the file come first, as a section of their own."""
    tops = [key for key in keys if "." not in key.name]
    if leaves := [key for key in tops if key.default]:
        yield "Keys at the top", "", leaves
    for top in tops:
        inner = [key for key in keys if key.name.startswith(f"{top.name}.")]
        if entries(inner):
            yield f"`{top.name}`", "" if inner[0].comment == top.comment else _plain(top.comment.text), inner


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in sorted(CONFIG.glob("*.yaml"), key=lambda path: (path.stem != "spiral_trainer", path.stem)):
        file = File(path)
        if not file.keys:  # a list
            continue
        program = "main_spiral" if path.stem == "spiral_trainer" else f"main_{path.stem}"
        parts.append(f"## {path.name}\n\nRead by `python -m recipe.spiral.{program}`. {_plain(file.header)}\n")
        for title, comment, keys in _sections(file.keys):
            parts.append("\n\n".join(filter(None, [f"### {title}", comment, entries(keys)])) + "\n")
        for group, option, comment in file.groups():
            choices = sorted((CONFIG / group).glob("*.yaml"))
            options = [f"- `{group}={choice.stem}`: {_option(File(choice))}" for choice in choices]
            default = "" if "${" in option else f" Default: `{option}`."
            said = f"{_plain(comment).rstrip('.')}.{default}"
            parts.append("\n".join([f"### The group `{group}`\n", f"{said}\n", *options, ""]))
    for folder in PRESETS:
        if files := [File(path) for path in sorted((CONFIG / folder).glob("*.yaml"))]:
            rows = [f"- `+{folder}={file.path.stem}`: {_plain(file.header)}" for file in files]
            parts.append("\n".join([f"## `+{folder}=...`\n", *rows, ""]))
    return "\n".join(parts)


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("current" if current else f"{PAGE}: not current: run python docs/configuration.py")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
