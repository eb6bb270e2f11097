"""Every page: its links lead somewhere, its commands exist and compose, and the README's figures are the files'."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from docs import results
from recipe.spiral.games import known_games
from tests.made_configs import composed_by

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


#: Programs that are not ours.
KNOWN = (
    *("source", "pip", "export", "ray", "ruff", "sqlite3", "docker", "zcat", "unshare", "(umask"),
    *("git", "cd", "mkdir", "cp", "python3.11"),
)


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
        file = words[words[0] in ("python", "bash")]
        assert file.startswith("~/verl/") or (ROOT / file).is_file(), words
    else:
        assert words[0] in KNOWN, f"{words}: unknown to this test"


def composed() -> list[tuple[str, ...]]:
    """Program and overrides of each command that Hydra composes; of a sweep the first job."""
    found = [words[2:] for _, words in commands() if words[:2] == ["python", "-m"] and words[2] in PROGRAMS]
    found = [[word for word in words if word != "-m" or "+sweep=seeds" in words] for words in found]
    first = [[re.sub(r"^([^\[{]+?),.*", r"\1", word) for word in words] for words in found]
    return list(dict.fromkeys(map(tuple, first)))


@pytest.mark.parametrize("words", composed(), ids=" ".join)
def test_a_command_composes(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program does it."""
    monkeypatch.chdir(tmp_path)
    # the extension that a page lets its reader write
    (tmp_path / "my_norms.py").write_text("from recipe.spiral.extensions import Extension\n")
    monkeypatch.syspath_prepend(tmp_path)
    OmegaConf.to_container(composed_by(PROGRAMS[words[0]], words[1:]), resolve=True)


def test_the_lag_for_a_default_run_is_one_that_its_snapshots_have() -> None:
    (told,) = [{*words} for _, words in commands() if "match_ups=[own_past]" in words]
    distance = OmegaConf.load(ROOT / "recipe/spiral/config/spiral_trainer.yaml").trainer.save_freq
    assert "policies=[outputs/spiral/default]" in told and f"lag={distance}" in told


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


def test_what_did_not_run_on_a_gpu_is_said_in_one_place() -> None:
    claims = re.compile(r"(?i)\b(?:not|nothing|neither|no)\b[^.|]{0,60}\brun\b[^.|]{0,20}\bon (?:a )?GPUs?\b|by us yet")
    texts = [*PAGES, *ROOT.glob("run_scripts/**/*.sh"), *ROOT.glob("recipe/**/*.py"), *ROOT.glob("recipe/**/*.yaml")]
    said = {page_id(text) for text in texts if claims.search(" ".join(text.read_text(encoding="utf-8").split()))}
    assert said == {"docs/gpu.md"}


def test_the_map_names_every_room() -> None:
    rooms = [folder.name for folder in (ROOT / "recipe" / "spiral").iterdir() if any(folder.glob("*.py"))]
    where = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[1]
    assert [room for room in rooms if f"{room}/" not in where] == []


def test_the_readme_counts_the_games() -> None:
    assert f"It has {len(known_games())} games and variants of its own" in README


@pytest.mark.parametrize("page", results.PAGES, ids=page_id)
def test_results_are_those_of_the_result_files(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == results.with_table(page), "run python docs/results.py"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "recipe" / "spiral" / "README.md"], ids=page_id)
def test_the_figures_that_explain_a_table_are_in_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (example,) = re.findall(r'"(\d+% / \d+%)" are player 0 and player 1', text)
    assert f"| {example} |" in text


def test_the_time_of_the_modes_is_the_measured_one() -> None:
    script = (ROOT / "run_scripts" / "experiments" / "modes.sh").read_text(encoding="utf-8")
    measured = json.loads((ROOT / "docs" / "experiments" / "modes.json").read_text(encoding="utf-8"))["minutes"]
    assert round(measured) == 7 and "about seven minutes in all" in script


def test_the_readmes_defaults_are_the_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = composed_by("spiral_trainer", ["hardware=cpu"])
    table = README.split("## The ten keys that matter")[1].split("\n\n")[1]
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^|`]+?)`? \|", table, re.MULTILINE)
    assert len(rows) == 10
    for key, default in rows:
        value = "hf" if key == "model" else OmegaConf.select(config, key)
        assert default == "detected" or value == OmegaConf.from_dotlist([f"default={default}"]).default, key
