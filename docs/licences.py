"""Writes licences.md: every package of requirements/cpu.lock with its licence, as the installed packages state it.

python docs/licences.py            writes the page
python docs/licences.py --check    writes nothing; exit status 1 where the page is not current
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
LOCK = DOCS.parent / "requirements" / "cpu.lock"
PAGE = DOCS / "licences.md"
#: What asks more than to keep a notice: of whoever changes the files (MPL, LGPL), or of whoever uses them.
CONDITIONS = re.compile(r"GPL|MPL|Mozilla|Proprietary|End User|unknown")

HEAD = """# Licences

Made from `requirements/cpu.lock`, which has the versions, by `python docs/licences.py`; do not edit. A licence is what
the package's metadata says; libraries inside a wheel may have others, which its licence files name.

This project is under Apache-2.0. The lock holds no package under the GPL. TextArena asks for `chess` (GPLv3 or later)
for its game `Chess-v0` alone, which Python 3.11 cannot load, so `run_scripts` install TextArena without it.
`pip install textarena` does install `chess`; `pip uninstall chess` takes nothing but that game away. On GPUs
`requirements/gpu.lock` adds NVIDIA's libraries, which have NVIDIA's licence; on a CPU, `requirements/torch-cuda.lock`
does where torch is PyPI's build.
"""


def locked() -> dict[str, str]:
    """Versions, by the packages' names."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return dict(line.split()[0].split("==") for line in lines if not line.startswith("#"))


def licence(package: str) -> str:
    """What an installed package's metadata says: an expression, a few words, or its classifiers.

    Raises:
        PackageNotFoundError: it is not installed.
    """
    metadata = importlib.metadata.metadata(package)
    words = str(metadata.get("License-Expression") or metadata.get("License") or "").strip()
    classifiers = [str(line) for line in metadata.get_all("Classifier") or [] if str(line).startswith("License :: ")]
    named = ", ".join(line.rsplit(" :: ", 1)[-1] for line in classifiers)
    if "\n" in words:  # some have the whole text there
        words = named or words.splitlines()[0]
    return words or named or "unknown"


def table(licences: dict[str, str]) -> str:
    rows = [f"| {name} | {words} |" for name, words in licences.items()]
    return "\n".join(["| package | licence |", "| --- | --- |", *rows])


def by_licence(licences: dict[str, str]) -> str:
    """A line for each licence, those of the most packages first."""
    named: dict[str, list[str]] = {}
    for name, words in licences.items():
        named.setdefault(words, []).append(name)
    ordered = sorted(named.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(f"- {words}: {', '.join(names)}" for words, names in ordered)


def page() -> str:
    """The whole page.

    Raises:
        PackageNotFoundError: a package of the lock is not installed, or in another version.
    """
    for name, version in locked().items():
        installed = importlib.metadata.version(name).split("+")[0]  # torch of the CPU's index has +cpu
        if installed != version:  # whose words may be others
            raise importlib.metadata.PackageNotFoundError(f"{name} {version} (installed: {installed})")
    licences = {name: licence(name) for name in locked()}
    conditions = {name: words for name, words in licences.items() if CONDITIONS.search(words)}
    others = {name: words for name, words in licences.items() if name not in conditions}
    return "\n".join(
        [
            HEAD,
            "## With conditions besides a notice, or without a licence in their metadata\n",
            f"{table(conditions)}\n",
            "## All others\n",
            f"{by_licence(others)}\n",
        ]
    )


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("current" if current else f"{PAGE}: not current: run python docs/licences.py")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
