"""The warm start's rounds and learning rates; what comes of it is in test_tiny.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tqdm import tqdm

from recipe.spiral.lab.models import warm_start
from recipe.spiral.lab.models.read_back import random_play
from recipe.spiral.lab.models.warm_start import Positions, Schedule


def test_a_rounds_learning_rate_goes_up_stays_and_ends_near_zero() -> None:
    schedule = Schedule(warmup_steps=10, decay=0.5)
    factors = [schedule.factor(1, step, 100) for step in range(1, 101)]
    assert factors[0] == 0.1 and factors[9:51] == [1.0] * 42 and factors[-1] == pytest.approx(0.02)
    assert factors[51:] == sorted(factors[51:], reverse=True)


def test_further_rounds_learn_at_a_fraction_of_the_first_rounds_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    factors: list[float] = []
    missed = iter([["card"], ["card"], []])
    monkeypatch.setattr(warm_start, "_optimizers", lambda *_: [])
    monkeypatch.setattr(warm_start, "_batch", lambda *_: [])
    monkeypatch.setattr(warm_start, "_step", lambda model, trees, optimizers, factor: factors.append(factor) or 0.0)
    monkeypatch.setattr(warm_start, "measure", lambda *_: {"missed": next(missed)})
    schedule = Schedule(steps=40, more_steps=20, warmup_steps=4, again=0.25)
    train = {"KuhnPoker": Positions(random_play("KuhnPoker", 1, 0), [])}
    reader: Any = SimpleNamespace(model=None)

    figures = warm_start.warm_up(reader, train, [], schedule, 0, tqdm(disable=True))

    rounds = [factors[:40], factors[40:60], factors[60:]]
    assert [len(each) for each in rounds] == [40, 20, 20]
    assert [max(each) for each in rounds] == [1.0, 0.25, 0.25]
    assert (figures["rounds"], figures["steps"]) == (3, 80)
