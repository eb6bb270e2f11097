"""The exact metrics of an evaluation's policies: their tables, by scores or by samples, and what follows from them.

By scores it is before engines take the memory, with one model after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .evaluation_folder import Lines
from .exploitability import exploitability_metrics as metrics
from .exploitability.information_sets import game_tree
from .exploitability.policy_table import PolicyTable, StoredTable, StoredTables, read_player, read_scores
from .matches import Seating
from .policies import Policy
from .ratings import Row
from .settings import ExactMetric, ReadBy, Settings


class Measured(NamedTuple):
    """A policy, and a game that it is measured at."""

    policy: Policy
    game: str
    metric: ExactMetric

    @property
    def place(self) -> tuple[str, str]:
        return self.policy.name, self.game


class Measuring:
    """Policies with weights can be measured by scores, all that play a game by samples.

    Attributes:
        all: who is measured, and at which games.
        tables: those that are whole, by ``Measured.place``.

    Raises:
        ValueError: prompts show more than one observation.
    """

    def __init__(self, policies: Sequence[Policy], settings: Settings, show: Callable[[str], None]) -> None:
        self._policies, self._settings, self._show = policies, settings, show
        self.all = [
            Measured(policy, game, metric)
            for policy in policies
            for metric in settings.exact_metrics.values()
            for game in metric.games
            if policy.unable(game) is None and (policy.model is not None or metric.by is ReadBy.samples)
        ]
        for policy, game, _ in self.all:
            if policy.model is not None and policy.prompt(game)[1] != "state":
                raise ValueError(
                    f"prompt.style=dialogue ({policy.name}): exploitability and optimality take what a policy answers "
                    "to one observation; set exploitability.games=[] and optimality.games=[], or prompt.style=state"
                )
        self.tables: dict[tuple[str, str], PolicyTable] = {}
        self._stored: dict[tuple[str, str], StoredTable] = {}

    def read(self, lines: Lines) -> None:
        """Take the tables that earlier starts have stored. One that was made otherwise is another one."""
        stored = StoredTables(lines)
        for each in self.all:
            how = {"by": each.metric.by, "policy": dict(each.policy.identity), **self._settings.decisive()}
            if each.metric.by is ReadBy.samples:
                how |= {"samples": each.metric.samples, "seed": self._settings.seed}
            self._stored[each.place] = stored.of(*each.place, how)
            if (table := self._stored[each.place].whole()) is not None:
                self.tables[each.place] = table

    def missing(self, by: ReadBy) -> list[Measured]:
        return [each for each in self.all if each.metric.by is by and each.place not in self.tables]

    def score(self, seating: Seating) -> None:
        """Make the tables that are missing by scores."""
        for policy in self._policies:
            games = [each.game for each in self.missing(ReadBy.scores) if each.policy is policy]
            if not games:
                continue
            import torch

            self._show(f"log-probabilities of {policy.name}: {', '.join(games)}")
            scorer = seating.scorer(policy)
            for game in games:
                place = policy.name, game
                self.tables[place] = table = read_scores(game_tree(game), scorer(game))
                for row, values in enumerate(table.table.tolist()):
                    self._stored[place].add(row, values)
            del scorer
            gc.collect()
            torch.cuda.empty_cache()

    async def sample(self, each: Measured, seating: Seating) -> None:
        """Make a table by samples."""
        settings, stored, samples = self._settings, self._stored[each.place], each.metric.samples
        self._show(f"{each.policy.name} in {each.game}: {samples} samples of each information set")
        how = (samples, settings.seed, settings.match_rules, settings.concurrency, settings.void_retries)
        player = seating(*each.place)
        self.tables[each.place] = await read_player(game_tree(each.game), player, *how, stored.rows, stored.add)

    def figures(self) -> dict[str, list[Row]]:
        """The rows of ``results.json``, when no table is missing."""
        exploit, optimal = self._settings.exploitability, self._settings.optimality
        runs: dict[str, list[str]] = {}
        tables: dict[str, dict[str, PolicyTable]] = {game: {} for game in (*exploit.games, *optimal.games)}
        for policy in self._policies:
            if policy.run is not None:
                runs.setdefault(policy.run, []).append(policy.name)
        for each in self.all:
            tables[each.game][each.policy.name] = self.tables[each.place]
        how = exploit.by, self._settings.match_rules, self._settings.seed
        return {
            "exploitability": [
                row for game in exploit.games for row in metrics.exploited(game, tables[game], runs, *how)
            ],
            "optimality": [row for game in optimal.games for row in metrics.optimal(game, tables[game], optimal.by)],
        }
