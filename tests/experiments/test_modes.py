"""The comparison of trainer modes: what is read from a run's metrics, and the page that it becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments import modes, pages
from experiments.composed import compose_run
from recipe.spiral.storage.metrics_file import METRICS, MetricsFile

CONFIG = str(Path(modes.__file__).with_name("config"))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    with initialize_config_dir(CONFIG, version_base=None):
        whole: Any = OmegaConf.to_container(compose("modes"), resolve=True)
    return {
        **whole,
        "games": 64,
        "steps": 4,
        "every": 2,
        "skip": 1,
        "work": str(tmp_path / "work"),
        "output": str(tmp_path / "docs"),
    }


def write_run(folder: Path, step: float, stale: float) -> None:
    """Steps of so many seconds, with half a second of validation after each second one."""
    folder.mkdir(parents=True)
    now = [100.0]
    file = MetricsFile(folder, clock=lambda: now[0])
    file.log({modes.NASH_CONV: 0.9}, 0)
    for number in range(1, 5):
        now[0] += step
        logged = {"timing_s/step": step * (10 if number == 1 else 1)}
        logged |= {"async/staleness/mean": stale, "async/staleness/0": 1 - stale, "async/staleness/1": stale}
        if number % 2 == 0:
            now[0] += 0.5
            logged[modes.NASH_CONV] = 0.9 - number / 10
        file.log(logged, number)
    (folder / modes.NOTES).write_text(json.dumps({"commit": "0123", "others": 0.5}))
    (folder / "config.yaml").write_text("actor_rollout_ref: {model: {path: /nowhere}}\n")


def test_what_is_measured_becomes_a_page(config: dict[str, Any], tmp_path: Path) -> None:
    for number, mode in enumerate(config["modes"]):
        write_run(modes._folder(mode, config), step=2.0 - number / 2, stale=min(number, 1) * 0.75)
    result = modes.run(config, [])
    first, second, _ = result.rows
    assert first["games_per_second"] == 64 / 2 and second["games_per_second"] == pytest.approx(64 / 1.5)
    assert (first["step"], first["slowest"], first["games"]) == (2.0, 2.0, 256), "the first step does not count"
    assert result.figures["curves"]["sync"] == [
        {"games": 0, "seconds": 0.0, "nash_conv": 0.9},
        {"games": 128, "seconds": 4.5, "nash_conv": pytest.approx(0.7)},
        {"games": 256, "seconds": 9.0, "nash_conv": pytest.approx(0.5)},
    ]
    assert result.figures["staleness"]["separate_async"] == {"0": 0.25, "1": 0.75}
    others = [{**config, "seed": 5}, {**config, "modes": {"sync": ["batch_unit=turns"]}}]
    assert len({modes._folder("sync", settings) for settings in (config, *others)}) == 3, "they are trained anew"
    pages.publish(result, config, [])
    page = (tmp_path / "docs" / "modes.md").read_text()
    assert "| sync | 32.0 | 2.00 (2.00 to 2.00) | 25% | 50% |" in page and "| 0.75 | 0.5 |" in page
    assert "| 256 | 0.500, 9 s |" in page


def test_a_run_that_fails_is_named_and_made_again(config: dict[str, Any], tmp_path: Path) -> None:
    one = {**config, "modes": {"sync": ["no_such_key=1"]}}
    folder = modes._folder("sync", one)
    write_run(folder, step=2.0, stale=0.0)  # by a run that was stopped: others' cores count from its own metrics on
    (folder / modes.NOTES).unlink()
    with pytest.raises(modes.Failed, match=r"sync ended with status 2: see .*output\.txt"):
        modes.run(one, [])
    assert not (folder / modes.NOTES).exists() and not (folder / METRICS).exists()


def test_the_runs_can_be_composed(config: dict[str, Any]) -> None:
    for mode in config["modes"]:
        made = compose_run([*config["overrides"], f"trainer.v1.trainer_mode={mode}"])
        assert made.games == ["KuhnPoker"] and made.algorithm.rollout_correction.bypass_mode is False
