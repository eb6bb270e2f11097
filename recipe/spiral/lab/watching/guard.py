"""Detects training that goes wrong: collapsed reasoning, an entropy near 0 or too high, a role that always wins.

It compares the mean of each metric over the last steps with bounds and with the run's own first steps, so that a model
which always answered with four tokens does not count as collapsed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median_low
from typing import Any

SYMPTOMS = (
    "short_responses",
    "short_reasoning",
    "low_entropy",
    "high_entropy",
    "role_imbalance",
    "invalid",
    "gradient",
    "not_finite",
)
_GRADIENT = "actor/grad_norm"
#: With fewer decided games in a window, role_imbalance is not judged.
_DECIDED = 30
#: The settings that are bounds, each with the value that nothing exceeds.
_BOUNDS = {"shorter": -math.inf, "short_reasoning": math.inf, "entropy_low": -math.inf, "entropy_high": math.inf} | {
    name: math.inf for name in ("role_imbalance", "invalid", "grad_norm")
}


@dataclass
class _Series:
    """The values of a quantity in the run's first steps and in its last steps."""

    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)

    def add(self, value: float, window: int) -> None:
        if len(self.first) < window:
            self.first.append(value)
        self.last = [*self.last, value][-window:]


class Guard:
    """Looks at each step's metrics and reports each symptom of each game once, until it clears.

    Args:
        settings: the config's ``guard``. A value that is not finite needs no ``patience``.
    """

    def __init__(self, settings: Any) -> None:
        self._window, self._patience = int(settings.window), int(settings.patience)
        self._bounds = {name: none if settings[name] is None else settings[name] for name, none in _BOUNDS.items()}
        self._series: dict[str, _Series] = {}
        #: By symptom and game: steps in a row with it; negative: steps in a row without it.
        self._streaks: dict[tuple[str, str], int] = {}
        self._active: set[tuple[str, str]] = set()

    def look(self, metrics: Mapping[str, float]) -> list[str]:
        """Take in a step's metrics; returns a line for each new symptom."""
        values = _quantities(metrics)
        for name, value in values.items():
            if math.isfinite(value):
                self._series.setdefault(name, _Series()).add(value, self._window)
        games = sorted({name.split("/")[0] for name in values if name != _GRADIENT})
        shown = {(symptom, game): line for game in games for symptom, line in self._of_game(game)}
        shown |= {(symptom, ""): line for symptom, line in self._of_step(values)}
        new = []
        for key in [(symptom, game) for game in [*games, ""] for symptom in SYMPTOMS]:
            streak = self._streaks.get(key, 0)
            streak = max(streak, 0) + 1 if key in shown else min(streak, 0) - 1
            self._streaks[key] = streak
            if key not in self._active and streak >= (1 if key[0] == "not_finite" else self._patience):
                self._active.add(key)
                new.append(shown[key])
            elif streak <= -self._patience:
                self._active.discard(key)
        return new

    def metrics(self) -> dict[str, float]:
        """``guard/<symptom>``: 1 while some game has it, else 0."""
        active = {symptom for symptom, _ in self._active}
        return {f"guard/{symptom}": float(symptom in active) for symptom in SYMPTOMS}

    def rest(self) -> None:
        """Forget the window but not the first steps, so that a run that goes on after a stop has a window's time."""
        for series in self._series.values():
            series.last = []
        self._streaks, self._active = {}, set()

    # -- symptoms ------------------------------------------------------------------------------------------------------

    def _of_game(self, game: str) -> Iterator[tuple[str, str]]:
        """A game's symptoms in this step, each with its line."""
        bounds, past = self._bounds, f"over the last {self._window} steps"
        for role in (1, 0):  # with both roles a symptom has one line: player 0's
            place, player = f"{game}/p{role}", f"{game}: player {role}"
            for early, now in self._means(f"{place}/response_tokens"):
                if now < bounds["shorter"] * early:
                    line = f"{player} answered with {now:.1f} tokens on average {past}, {early:.1f} in the first"
                    yield "short_responses", line
            for early, now in self._means(f"{place}/short_reasoning"):
                if now > early + bounds["short_reasoning"]:
                    line = f"{player} hardly reasoned in {now:.0%} of the turns {past}, {early:.0%} at first"
                    yield "short_reasoning", line
            for _, now in self._means(f"{place}/entropy"):
                line = f"{player}'s entropy is {now:.2g} nats per token {past}"
                if now < bounds["entropy_low"]:
                    yield "low_entropy", line
                if now > bounds["entropy_high"]:
                    yield "high_entropy", line
        series = [self._ready(f"{game}/wins{role}") for role in (0, 1)]
        wins = [sum(each.last) for each in series if each is not None]
        if len(wins) == 2 and sum(wins) >= _DECIDED and abs(wins[0] - wins[1]) > bounds["role_imbalance"] * sum(wins):
            player = f"{game}: player {int(wins[1] > wins[0])}"
            share = f"{max(wins) / sum(wins):.0%} of the decided games of the last {self._window} steps"
            yield "role_imbalance", f"{player} won {share}"
        for early, now in self._means(f"{game}/invalid"):
            if now > max(bounds["invalid"], early):
                shares = f"{now:.0%} of the games of the last {self._window} steps, {early:.0%} of the first"
                yield "invalid", f"{game}: turns that were not legal ended {shares}"

    def _of_step(self, values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """The symptoms of no game."""
        gradient = self._ready(_GRADIENT)
        if gradient is not None and _GRADIENT in values:
            usual = max(median_low(gradient.first), median_low(gradient.last))
            if 0 < usual * self._bounds["grad_norm"] < values[_GRADIENT]:
                yield "gradient", f"the gradient's norm is {values[_GRADIENT]:.3g}; its median is {usual:.3g}"
        if bad := sorted(name for name, value in values.items() if not math.isfinite(value)):
            yield "not_finite", f"{bad[0]} is {values[bad[0]]}"

    def _ready(self, name: str) -> _Series | None:
        """A series, if it is long enough to be judged."""
        series = self._series.get(name)
        return series if series and len(series.first) == len(series.last) == self._window else None

    def _means(self, name: str) -> Iterable[tuple[float, float]]:
        """The mean over the first steps and over the last ones; nothing while a series is too short."""
        series = self._ready(name)
        return [] if series is None else [(fmean(series.first), fmean(series.last))]

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "series": {name: {"first": series.first, "last": series.last} for name, series in self._series.items()},
            "streaks": [[symptom, game, streak] for (symptom, game), streak in sorted(self._streaks.items())],
            "active": [list(key) for key in sorted(self._active)],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``, or from none. A shorter window drops values; a longer one waits for more."""
        self._series = {
            name: _Series(series["first"][: self._window], series["last"][-self._window :])
            for name, series in state.get("series", {}).items()
        }
        self._streaks = {(symptom, game): streak for symptom, game, streak in state.get("streaks", ())}
        self._active = set(map(tuple, state.get("active", ())))


_OF_ROLE = re.compile(r"games/([^/]+)/p([01])/(response_tokens|short_reasoning|entropy|invalid|win)")


def _quantities(metrics: Mapping[str, float]) -> dict[str, float]:
    """The quantities that are watched: by ``<game>/...``, and the gradient's norm."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if name == _GRADIENT:
            found[name] = float(value)
        elif of_role := _OF_ROLE.fullmatch(name):
            game, role, what = of_role.groups()
            if what == "invalid":  # either role's turn may have ended a game
                found[f"{game}/invalid"] = found.get(f"{game}/invalid", 0.0) + value
            elif what != "win":
                found[f"{game}/p{role}/{what}"] = float(value)
            elif f"games/{game}/role_imbalance" in metrics:
                found[f"{game}/wins{role}"] = value * metrics[f"games/{game}/p{role}/games"]
    return found
