"""What the guard sees in hand-made metrics, what it says of it and how often, and how it ends a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from recipe.spiral.lab.watching.guard import SYMPTOMS, Guard
from recipe.spiral.processes.interrupts import STOPPED
from recipe.spiral.processes.run_log import LOG
from tests.fake_verl import CONFIG, trainer

WINDOW, PATIENCE = 4, 2


#: The setting of a symptom, where it has another name.
BOUND = {
    "short_responses": "shorter",
    "low_entropy": "entropy_low",
    "high_entropy": "entropy_high",
    "gradient": "grad_norm",
}


def guard(patience: int = PATIENCE, **bounds: float | None) -> Guard:
    """With the default bounds, or with these alone."""
    unbound = dict.fromkeys(CONFIG.guard) if bounds else CONFIG.guard
    return Guard(OmegaConf.create({**unbound, **bounds, "window": WINDOW, "patience": patience}))


def healthy(game: str = "KuhnPoker", **more: float) -> dict[str, float]:
    """A step of the tiny model: four tokens a turn, no reasoning."""
    metrics = {"actor/grad_norm": 0.1, f"games/{game}/role_imbalance": 0.04}
    for role, win in ((0, 0.48), (1, 0.52)):
        metrics |= {
            f"games/{game}/p{role}/{name}": value
            for name, value in {
                "win": win,
                "draw": 0.0,
                "loss": 1 - win,
                "games": 64.0,
                "invalid": 0.01,
                "response_tokens": 4.0,
                "entropy": 0.1,
                "short_reasoning": 1.0,
            }.items()
        }
    for name, value in more.items():
        metrics["actor/grad_norm" if name == "grad_norm" else f"games/{game}/{name.replace('__', '/')}"] = value
    return metrics


def show(watch: Guard, *steps: dict[str, float]) -> list[str]:
    return [line for metrics in steps for line in watch.look(metrics)]


def thinking(**more: float) -> dict[str, float]:
    """A step of a model that reasons."""
    long = {f"p{role}__{name}": v for role in (0, 1) for name, v in (("response_tokens", 300), ("short_reasoning", 0))}
    return healthy(**{**long, **more})


def test_a_healthy_run_is_left_alone() -> None:
    watch = guard()
    for step in range(200):
        wobble = math.sin(step)
        metrics = healthy(grad_norm=0.2 + 0.15 * wobble, p0__win=0.48 + 0.2 * wobble, p1__win=0.52 - 0.2 * wobble)
        assert watch.look(metrics) == []
    assert watch.metrics() == {f"guard/{symptom}": 0.0 for symptom in SYMPTOMS}


@pytest.mark.parametrize(
    ("symptom", "before", "after"),
    [
        ("short_responses", thinking(), thinking(p1__response_tokens=5)),
        ("short_reasoning", thinking(p0__short_reasoning=0.1), thinking(p0__short_reasoning=0.9)),
        ("low_entropy", healthy(), healthy(p0__entropy=0.00001)),
        ("high_entropy", healthy(), healthy(p1__entropy=9.0)),
        ("role_imbalance", healthy(), healthy(p0__win=0.98, p1__win=0.02)),
        ("invalid", healthy(p0__invalid=0.2), healthy(p0__invalid=0.5, p1__invalid=0.3)),
        ("gradient", healthy(), healthy(grad_norm=30.0)),
    ],
)
def test_a_symptom_is_said_once_until_it_clears(
    symptom: str, before: dict[str, float], after: dict[str, float]
) -> None:
    bound = BOUND.get(symptom, symptom)
    # so patient that the window holds nothing from before; the gradient's norm is compared with the window's own
    patience = PATIENCE if symptom == "gradient" else WINDOW
    watch = guard(patience, **{bound: float(CONFIG.guard[bound])})
    assert show(watch, *[before] * (2 * WINDOW)) == []
    assert len(show(watch, *[after] * (2 * WINDOW))) == 1
    active = {symptom} if symptom != "gradient" else set()  # what lasts for a window is no spike
    assert {name for name, value in watch.metrics().items() if value} == {f"guard/{name}" for name in active}
    assert show(watch, *[before] * (3 * WINDOW)) == []
    assert not any(watch.metrics().values()), "cleared"
    assert len(show(watch, *[after] * (2 * WINDOW))) == 1, "and back again"


@pytest.mark.parametrize("name", ["grad_norm", "p0__entropy"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_said_at_once(name: str, value: float) -> None:
    watch = guard()
    (line,) = watch.look(healthy(**{name: value}))
    assert line.endswith(f"is {value}")
    assert watch.metrics()["guard/not_finite"] == 1.0
    assert watch.look(healthy(**{name: value})) == []
    json.dumps(watch.state_dict(), allow_nan=False)


@pytest.mark.parametrize("steps", [2, WINDOW, WINDOW + 1, WINDOW + 3, 3 * WINDOW])
def test_the_state_goes_through_json(steps: int) -> None:
    """A guard that is loaded says what the one that was saved would have said."""
    run = [thinking()] * WINDOW + [thinking(p0__response_tokens=3)] * (2 * WINDOW) + [thinking()] * 20
    whole, first, second = guard(), guard(), guard()
    show(whole, *run[:steps])
    show(first, *run[:steps])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert show(second, *run[steps:]) == show(whole, *run[steps:])
    assert second.state_dict() == whole.state_dict()


# -- in a run ----------------------------------------------------------------------------------------------------------

RUN = [healthy()] * 12 + [healthy(p0__win=1.0, p1__win=0.0)] * 60
SETTINGS = ("guard.window=4", "guard.patience=2", "trainer.total_training_steps=40", "trainer.save_freq=5")
LINE = "KuhnPoker: player 0 won 100% of the decided games of the last 4 steps"


@pytest.mark.parametrize("test_freq", [-1, 7])
def test_stop_saves_validates_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, test_freq: int) -> None:
    more = ("guard.action=stop", f"trainer.test_freq={test_freq}")
    made = trainer(monkeypatch, tmp_path, *SETTINGS, *more, steps=list(RUN))
    made.fit(SimpleNamespace())
    validations = ["validate 17"] if test_freq > 0 else []
    assert made.done[-2 - len(validations) :] == ["save 17", *validations, "end"]
    why = f"stopped after step 17 by guard.action=stop: {LINE}"
    lines = (tmp_path / LOG).read_text().splitlines()
    at = lines.index(why)
    assert lines[at - 1] == f"guard: {LINE}"
    assert (tmp_path / STOPPED).read_text() == why


def test_a_silent_opponent_stops_a_run_in_the_same_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = trainer(monkeypatch, tmp_path, *SETTINGS, "trainer.save_freq=9", steps=[healthy()] * 40)
    made.state.watchers[0]._voids.silent = why = (
        "max_void_steps=3: gpt: 1 of its 1 games were void, the first: HTTP 429: pay"
    )
    made.fit(SimpleNamespace())
    assert made.done == ["save 1", "validate 1", "end"]
    assert (tmp_path / STOPPED).read_text() == f"stopped after step 1 by {why}"
