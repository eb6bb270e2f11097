"""The pages follow the result files, and the committed pages are made from the committed results."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import pages, text
from experiments.estimates import SCHEMES
from experiments.result import BadResult, Result, weights_digest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "experiments"


def made(**rae: tuple[float, float, float]) -> Result:
    """A result with RAE's ratio by game."""
    rows = [row(game, number / 10, ratio) for number, (game, ratio) in enumerate(rae.items())]
    step = {"advantage": 0.1, "expected_rae": 0.9, "ratios": {scheme: [1.0, 0.9, 1.1] for scheme in SCHEMES}}
    return Result(
        name="variance",
        title="Variance",
        command="python -m experiments.variance",
        commit="0123456789ab",
        seeds=(0, 1, 2),
        games=96,
        minutes=2.0,
        settings={"decay": 0.95, "batch": 128, "group": 8, "model_games": ["A"], "handicap_game": "A"},
        rows=rows,
        figures={"handicap": [{"handicap": 0.0, **step}, {"handicap": 1.0, **step}]},
    )


def row(game: str, advantage: float, rae: tuple[float, float, float]) -> dict[str, Any]:
    return {
        "game": game,
        "policy": "free",
        "games": 32,
        "legal": 1.0,
        "advantage": advantage,
        "won_by_role": advantage**2,
        "wins": [0.5, 0.0, 0.5],
        "random_wins": [0.5, 0.0, 0.5],
        "variance": 1.0,
        "signal": 0.01,
        "score_mean": [0.0, 0.0],
        "illegal_games": 0.0,
        "illegal_variance": 0.0,
        "ratios": {**{scheme: [1.0, 0.9, 1.1] for scheme in SCHEMES}, "rae": list(rae)},
        "expected_rae": 1.0,
        "rae_by_seed": [1.0, 1.0, 1.0],
    }


def test_findings_follow_the_intervals() -> None:
    page = pages.page(made(A=(0.8, 0.7, 0.9), B=(1.02, 0.99, 1.05), C=(1.03, 1.01, 1.05)))
    assert "RAE lowers the variance in 1 of 3 games: A." in page
    assert "RAE raises the variance in 1 games: C." in page
    assert "No change is shown in 1 games: B (p at least 0.05 after Holm's correction)." in page
    assert "RAE lowers the variance in 0 of 1 games: none." in pages.page(made(A=(1.02, 0.99, 1.05)))


def test_an_interval_just_below_1_shows_no_change_among_several_games() -> None:
    alone, among = made(A=(0.9, 0.82, 0.99)), made(A=(0.9, 0.82, 0.99), B=(1.0, 0.9, 1.1), C=(1.0, 0.9, 1.1))
    assert "lowers the variance in 1 of 1 games" in pages.page(alone)
    assert "lowers the variance in 0 of 3 games" in pages.page(among)


def test_chance_in_the_mean_outcome_and_untrained_policies_are_named() -> None:
    """Of four groups of games, the mean outcome of 0.1 may as well be 0 or 1: 1.03 times 1 to 0 is expected."""
    result = made(A=(1.04, 1.02, 1.06), B=(1.69, 1.5, 1.9))
    result.rows[1]["policy"] = 40.0
    page = pages.page(result)
    assert "The expected ratio lies outside the interval in: B (1.00)." in page
    assert "Chance explains why it does in: A (1.00)." in page
    assert "In B (1.69) the policy has learned nothing" in page
    assert "Chance explains" not in pages.page(made(A=(1.01, 0.99, 1.02)))


def test_a_page_says_whether_its_runs_started_from_the_shipped_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = made(A=(0.8, 0.7, 0.9))
    weights = tmp_path / "recipe" / "spiral" / "shipped" / "tiny" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert "locally made" in pages.page(result), "an older result does not name its model"
    result.figures["models"] = [weights_digest(weights.parent)]
    assert "locally made" not in pages.page(result)
    result.figures["models"].append("another")
    assert "From the shipped model and 1 [locally made]" in pages.page(result)
    result.figures["models"] = ["another"]
    assert "\n\nFrom a [locally made" in pages.page(result)


def test_a_game_that_hides_rare_answers_is_marked() -> None:
    result = made(A=(0.8, 0.7, 0.9), B=(0.8, 0.7, 0.9))
    assert "Do not rely on" not in pages.page(result)
    result.rows[1]["score_mean"] = [0.0, 0.7]
    assert "Do not rely on B:" in pages.page(result)


def test_the_page_says_where_it_came_from() -> None:
    text = pages.page(made(A=(1.0, 0.9, 1.1)))
    for fact in (
        "python -m experiments.variance",
        "0123456789ab",
        "seeds 0, 1, 2",
        "96 games",
        "2.0 min",
    ):
        assert fact in text


def test_pages_come_out_the_same_again(tmp_path: Path) -> None:
    made(A=(1.0, 0.9, 1.1)).write(tmp_path)
    first = {file: file.read_text() for file in pages.regenerate(tmp_path, plots=False)}
    assert {file.name for file in first} == {"variance.md", "README.md"}
    assert first == {file: file.read_text() for file in pages.regenerate(tmp_path, plots=False)}


@pytest.mark.parametrize(
    ("output", "overrides", "folder"),
    [
        (None, [], "docs/experiments"),
        (None, ["work=elsewhere", "limit=60"], "docs/experiments"),
        (None, ["seeds=[7]"], "outputs/experiments/variance/docs"),
        (None, ["+arms.mine=[]", "limit=60"], "outputs/experiments/variance/docs"),
        ("mine", ["seeds=[7]"], "mine"),
    ],
)
def test_what_was_run_otherwise_does_not_take_the_place_of_the_projects_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, overrides: list[str], folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pages, "PLOTS", {"variance": {}})
    settings = {"work": "outputs/experiments/variance", "output": output}
    files = pages.publish(made(A=(1.0, 0.9, 1.1)), settings, overrides)
    assert sorted(str(file) for file in files) == [
        f"{folder}/{name}" for name in ("README.md", "variance.json", "variance.md")
    ]
    assert sorted(tmp_path.rglob("*.json")) == [tmp_path / folder / "variance.json"]
    assert ("not run" in (tmp_path / folder / "README.md").read_text()) == (folder == "docs/experiments")


def test_the_committed_pages_are_made_from_the_committed_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    committed = {file.name: file.read_text() for file in DOCS.glob("*.md")}
    for file in DOCS.glob("*.json"):
        shutil.copy(file, tmp_path)
    again = {file.name: file.read_text() for file in pages.regenerate(tmp_path, plots=False)}
    assert again == committed
    for file in DOCS.glob("*.json"):
        for name in pages.PLOTS[file.stem]:
            assert (DOCS / f"{name}.png").is_file()


def test_a_result_without_a_page_is_refused(tmp_path: Path) -> None:
    file = made(A=(1.0, 0.9, 1.1)).write(tmp_path)
    other = file.rename(tmp_path / "other.json")
    with pytest.raises(BadResult, match="is not the file's"):
        pages.read(other)
    other.write_text(other.read_text().replace('"variance"', '"unheard"', 1))
    with pytest.raises(BadResult, match=r"other\.json: name: 'unheard' has no page; known: handicap, modes, variance"):
        pages.read(other)
    assert pages.main([str(tmp_path), "--no-plots"]) == 1
    assert pages.main([str(tmp_path / "nowhere")]) == 2


def test_without_matplotlib_the_pages_are_made_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    made(A=(1.0, 0.9, 1.1)).write(tmp_path)
    assert {file.name for file in pages.regenerate(tmp_path)} == {"variance.md", "README.md"}
    assert "pip install matplotlib" in capsys.readouterr().err
    with pytest.raises(text.PlotsMissing):
        text.figure(1, 1)


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made(A=(0.8, 0.7, 0.9), B=(1.0, 0.9, 1.1)).write(tmp_path)
    pages.regenerate(tmp_path)
    assert (tmp_path / "variance.png").read_bytes().startswith(b"\x89PNG")
