"""Every page: its links lead somewhere, its commands exist and compose, and the README's figures are the files'."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from docs import results
from tests.made_configs import CONFIG

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipe/**/*.md")]
    if "__pycache__" not in page.parts
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Programs that Hydra configures, by the name of their config.
PROGRAMS = {"recipe.spiral.main_spiral": "spiral_trainer", "recipe.spiral.main_eval": "eval"}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of each command in a block of shell, without comments and variables set before it.

    An experiment's page has the command of the commit that it names.
    """
    found = []
    for page in [page for page in PAGES if page.parent.name != "experiments"]:
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


@pytest.mark.parametrize(("page", "words"), commands(), ids=lambda value: value if isinstance(value, str) else None)
def test_a_command_exists(page: str, words: list[str]) -> None:
    if words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), words
    elif words[0] in ("python", "bash") or words[0].startswith("run_scripts/"):
        assert (ROOT / words[words[0] in ("python", "bash")]).is_file(), words
    else:
        assert words[0] in ("source", "pip", "export", "ruff"), f"{words}: not a command that this test knows"


@pytest.mark.parametrize(
    ("page", "words"),
    [(page, words) for page, words in commands() if words[:2] == ["python", "-m"] and words[2] in PROGRAMS],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[3:]),
)
def test_a_configuration_composes(page: str, words: list[str]) -> None:
    """As --cfg job would say; of a sweep each key's first value."""
    name = PROGRAMS[words[2]]
    overrides = [word for word in words[3:] if not word.startswith("-") and word != "job"]
    if "-m" in words[3:]:
        overrides = [re.sub(r"=([^,\[]+),.*", r"=\1", override) for override in overrides]
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose(name, overrides=overrides)
    OmegaConf.to_container(config, resolve=True)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 210


@pytest.mark.parametrize("page", results.PAGES, ids=page_id)
def test_results_are_those_of_the_result_files(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == results.with_table(page), "run python docs/results.py"


def test_the_readmes_defaults_are_the_configs() -> None:
    table = README.split("## The ten keys that matter")[1].split("\n\n")[1]
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=["hardware=cpu"], return_hydra_config=True)
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^|`]+?)`? \|", table, re.MULTILINE)
    assert len(rows) == 10
    for key, default in rows:
        if default != "detected":
            assert _value(config, key) == OmegaConf.from_dotlist([f"default={default}"]).default, key


def _value(config: Any, key: str) -> Any:
    """A key's value; of a group, the option that was taken."""
    value = OmegaConf.select(config, key)
    return config.hydra.runtime.choices.get(key) if value is None else value
