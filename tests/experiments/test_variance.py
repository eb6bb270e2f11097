"""The experiment from config to result: what is done is not done again, and a wrong config is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments import pages, variance

CONFIG = str(Path(variance.__file__).with_name("config"))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """The experiment's own config, made small."""
    with initialize_config_dir(CONFIG, version_base=None):
        whole: Any = OmegaConf.to_container(compose("variance"), resolve=True)
    small = {"seeds": [0, 1], "group": 2, "sketch": 16, "resamples": 20, "random_games": 10, "model_games": ["none"]}
    games = {"KuhnPoker": {"groups": 3, "policy": 2.0}, "Nim": {"groups": 2, "policy": 4.0}}
    return {**whole, **small, "games": games, "work": str(tmp_path / "work"), "output": str(tmp_path / "docs")}


@pytest.fixture
def played(reader: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The games and seeds that are played, in a list that grows."""
    measure, games = variance.measure, []

    def measured(game: str, seed: int, *more: Any) -> Any:
        games.append((game, seed))
        return measure(game, seed, *more)

    monkeypatch.setattr(variance, "load_reader", lambda games: reader)
    monkeypatch.setattr(variance, "measure", measured)
    return games


def test_what_is_done_is_not_done_again(config: dict[str, Any], played: list[tuple[str, int]]) -> None:
    first = variance.run(config, ["a=b"])
    assert played == [("KuhnPoker", 0), ("Nim", 0), ("KuhnPoker", 1), ("Nim", 1)]
    assert first.games == (3 + 2) * 2 * 2 and first.seeds == (0, 1) and first.command.endswith("variance a=b")
    assert [row["game"] for row in first.rows] == ["KuhnPoker", "Nim"]
    assert all(row["legal"] == 1.0 for row in first.rows)

    del played[:]
    assert variance.run(config, ["a=b"]) == first and not played
    broken = next(Path(config["work"]).glob("Nim-1-*"))
    broken.write_bytes(broken.read_bytes()[:200])
    again = variance.run(config, ["a=b"])
    assert played == [("Nim", 1)] and again.rows == first.rows

    del played[:]
    variance.run({**config, "group": 3}, [])
    assert len(played) == 4  # other games
    del played[:]
    variance.run({**config, "decay": 0.9}, [])
    assert not played  # other figures of the same games


def test_the_result_has_a_page(config: dict[str, Any], played: list[tuple[str, int]]) -> None:
    folder = Path(config["output"])
    file = variance.run(config, []).write(folder)
    assert json.loads(file.read_text())["settings"]["seeds"] == [0, 1]
    assert folder / "variance.md" in pages.regenerate(folder, plots=False)
    assert "| Nim |" in (folder / "variance.md").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"games": {"Kuhn": {"groups": 2, "policy": "free"}}}, "KuhnPoker"),
        ({"games": {"KuhnPoker-v0": {"groups": 2, "policy": "free"}}}, "write KuhnPoker-3"),
        ({"games": {"Nim": {"groups": 2, "policy": "greedy"}}}, "policy=greedy: must be free, or a temperature"),
        ({"games": {"Nim": {"groups": 1, "policy": "free"}}}, "groups=1: must be at least 2"),
        ({"group": 1}, "group=1"),
        ({"seeds": [1, 1]}, "must name different seeds"),
        ({"handicap_game": "Snake"}, "handicap_game=Snake: must be one of games"),
    ],
)
def test_a_wrong_config_is_refused(
    config: dict[str, Any], played: list[tuple[str, int]], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        variance.run({**config, **change}, [])
    assert not played


def test_the_config_is_right(config: dict[str, Any]) -> None:
    with initialize_config_dir(CONFIG, version_base=None):
        whole: Any = OmegaConf.to_container(compose("variance"), resolve=True)
    variance.check(whole)
    assert len(whole["seeds"]) >= 3
