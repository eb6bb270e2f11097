"""Every page: its links lead somewhere, and its commands exist and compose."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.made_configs import composed_by

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "recipe" / "spiral" / "README.md"])
#: Programs that Hydra configures, by the name of their config.
PROGRAMS = {"recipe.spiral.main_spiral": "spiral_trainer", "recipe.spiral.main_eval": "eval"}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of each command in a block of shell, without comments and variables set before it."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    del words[0]
                if words:
                    found.append((page_id(page), words))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def test_commands_exist() -> None:
    missing = []
    for page, words in commands():
        if words[:2] == ["python", "-m"]:
            there = importlib.util.find_spec(words[2]) is not None
        elif words[0].startswith("run_scripts/") or (words[0] == "python" and not words[1].startswith("~")):
            there = (ROOT / words[words[0] == "python"]).is_file()
        else:
            there = True  # a program that is not ours
        if not there:
            missing.append((page, words))
    assert not missing


def composed() -> list[tuple[str, ...]]:
    """Program and overrides of each command that Hydra composes; of a multirun the first job."""
    found = [words[2:] for _, words in commands() if words[:2] == ["python", "-m"] and words[2] in PROGRAMS]
    first = [[re.sub(r"^([^\[{]+?),.*", r"\1", word) for word in words if word != "-m"] for words in found]
    return list(dict.fromkeys(map(tuple, first)))


@pytest.mark.parametrize("words", composed(), ids=" ".join)
def test_a_command_composes(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import recipe.spiral.lab.evaluation.settings  # noqa: F401  (it registers the evaluation's keys)

    monkeypatch.chdir(tmp_path)
    # the extension that a page lets its reader write
    (tmp_path / "my_norms.py").write_text("from recipe.spiral.extensions import Extension\n")
    monkeypatch.syspath_prepend(tmp_path)
    OmegaConf.to_container(composed_by(PROGRAMS[words[0]], words[1:]), resolve=True)
