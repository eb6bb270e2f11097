"""The exact metrics of an evaluation's policies: their tables, by scores or by samples, and what follows from them.

By scores it is before engines take the memory, with one model after the other. Tables are kept, so that nobody is asked
twice.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from ...match import play
from ...players.player import Player, PlayerFailure
from ...players.seeds import GameKey
from .evaluation_folder import Lines
from .exploitability.exploitability_metrics import against_perfect
from .exploitability.information_sets import GameTree, game_tree
from .exploitability.nash_conv import measure
from .exploitability.policy_table import PolicyTable, read_scores
from .exploitability.tabulated import uniform
from .matches import Seating, for_each
from .policies import Policy
from .ratings import Row
from .settings import ExactMetric, ReadBy, Settings

#: The lines of a table in the evaluation's file: the values of its information sets, by their rows.
Rows = dict[int, list[Any]]
UNIFORM = "(uniform play)"


class Measured:
    """A policy at a game that it is measured at, and its table, as far as it is there.

    Raises:
        ValueError: prompts show more than one observation.
    """

    def __init__(self, policy: Policy, game: str, metric: ExactMetric) -> None:
        self.policy, self.game, self.metric = policy, game, metric
        if policy.model is not None and policy.prompt(game)[1] != "state":
            raise ValueError(
                f"prompt.style=dialogue ({policy.name}): exploitability and optimality take what a policy answers to "
                "one observation; set exploitability.games=[] and optimality.games=[], or prompt.style=state"
            )

    @property
    def tree(self) -> GameTree:
        return game_tree(self.game)

    def read(self, stored: dict[tuple[str, str, str], Rows], lines: Lines, settings: Settings) -> None:
        """Take what earlier starts have stored of the table. One that was made otherwise is another one."""
        how = {"by": self.metric.by, "policy": dict(self.policy.identity), **settings.decisive()}
        if self.metric.by is ReadBy.samples:
            how |= {"samples": self.metric.samples, "seed": settings.seed}
        shown = "\0".join(decision.observation for decision in self.tree.information_sets)
        made = hashlib.blake2b(f"{json.dumps(how, sort_keys=True)}\0{shown}".encode(), digest_size=16).hexdigest()
        self._head = {"policy": self.policy.name, "game": self.game, "by": self.metric.by, "how": made}
        self._lines, self.rows = lines, stored.get((self.policy.name, self.game, made), {})

    def add(self, row: int, values: Sequence[float]) -> None:
        """Store a line: how the table was made, the information set (its row, the player, what that player alone knows,
        the actions so far, the legal actions), and in "values" their probabilities; or, where answers were sampled, how
        often each action was given, and last how often none that is legal."""
        place = self.tree.information_sets[row]
        where = {"row": row, "player": place.player, "private": place.private and str(place.private)}
        what = {"history": place.history, "actions": place.actions, "values": values}
        self._lines.append(json.dumps({**self._head, **where, **what}, separators=(",", ":")).encode() + b"\n")
        self.rows[row] = list(values)

    async def sample(self, player: Player, settings: Settings) -> None:
        """Put what is missing to a player, each information set ``samples`` times.

        Each answer is a match of one turn with a key of its own, so it is read and judged as in any other match. A
        player that fails is asked again, with other randomness, ``settings.void_retries`` times.

        Raises:
            PlayerFailure: the player had no answer, each time, or is not asked again.
        """
        samples, rules = self.metric.samples, replace(settings.match_rules, turn_cap=1)
        places = self.tree.information_sets
        counts = {row: [0] * (self.tree.legal.shape[1] + 1) for row in range(len(places)) if row not in self.rows}

        async def answer(index: int) -> None:
            row = index // samples
            for retry in range(settings.void_retries + 1):
                key = GameKey("reading", settings.seed, 0, index, retry)
                try:
                    record = await play(key, self.game, places[row].game(), (player, player), (), rules)
                    break
                except PlayerFailure as failure:
                    if not failure.again or retry == settings.void_retries:
                        raise
            (turn,) = record.turns
            legal = turn.action if turn.verdict == "legal" else None
            counts[row][-1 if legal is None else places[row].actions.index(legal)] += 1
            if sum(counts[row]) == samples:
                self.add(row, counts[row])

        await for_each([row * samples + k for row in counts for k in range(samples)], answer, settings.concurrency)

    @property
    def is_whole(self) -> bool:
        return len(self.rows) == len(self.tree.information_sets)

    @property
    def table(self) -> PolicyTable:
        """Once it is whole."""
        values = np.array([self.rows[row] for row in range(len(self.rows))])
        sampled = self.metric.by is ReadBy.samples
        return PolicyTable.sampled(self.tree, values) if sampled else PolicyTable(self.tree, values)


class Measuring:
    """Policies with weights can be measured by scores, all that play a game by samples. ``all`` says who is, at which
    games; errors as of ``Measured``."""

    def __init__(self, policies: Sequence[Policy], settings: Settings, show: Callable[[str], None]) -> None:
        self._settings, self._show = settings, show
        self.all = [
            Measured(policy, game, metric)
            for policy in policies
            for metric in settings.exact_metrics.values()
            for game in metric.games
            if policy.unable(game) is None and (policy.model is not None or metric.by is ReadBy.samples)
        ]

    def read(self, lines: Lines) -> None:
        """Take the tables that earlier starts have stored."""
        stored: dict[tuple[str, str, str], Rows] = defaultdict(dict)
        for line in map(json.loads, lines):
            stored[line["policy"], line["game"], line["how"]][line["row"]] = line["values"]
        for each in self.all:
            each.read(stored, lines, self._settings)

    def missing(self, by: ReadBy) -> list[Measured]:
        return [each for each in self.all if each.metric.by is by and not each.is_whole]

    def score(self, seating: Seating) -> None:
        """Make the tables that are missing by scores."""
        for name, group in groupby(self.missing(ReadBy.scores), lambda each: each.policy.name):
            import torch

            of_it = [*group]
            self._show(f"log-probabilities of {name}: {', '.join(each.game for each in of_it)}")
            scorer = seating.scorer(of_it[0].policy)
            for each in of_it:
                for row, values in enumerate(read_scores(each.tree, scorer(each.game)).table.tolist()):
                    each.add(row, values)
            del scorer
            gc.collect()
            torch.cuda.empty_cache()

    async def sample(self, each: Measured, seating: Seating) -> None:
        """Make a table by samples."""
        self._show(f"{each.policy.name} in {each.game}: {each.metric.samples} samples of each information set")
        await each.sample(seating(each.policy.name, each.game), self._settings)

    def figures(self) -> dict[str, list[Row]]:
        """The rows of ``results.json``, when no table is missing."""
        settings = self._settings
        return {
            "exploitability": [
                {"policy": name, "by": by, **measure(table, settings.match_rules, settings.seed)}
                for name, by, table in self._tables(settings.exploitability)
            ],
            "optimality": [
                {"policy": name, "game": table.tree.game_id, "by": by, **against_perfect(table)}
                for name, by, table in self._tables(settings.optimality)
            ],
        }

    def _tables(self, metric: ExactMetric) -> Iterator[tuple[str, str, PolicyTable]]:
        """The policies at the metric's games, and uniform play, each with how its table was made."""
        for game in metric.games:
            for each in self.all:
                if each.game == game:
                    yield each.policy.name, metric.by, each.table
            yield UNIFORM, "exact", PolicyTable(game_tree(game), uniform(game_tree(game)))
