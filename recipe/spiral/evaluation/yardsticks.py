"""Exact yardsticks for every policy with weights: it is read at each information set, once, and measured.

What was read is kept in the evaluation's folder, ``readings/``, and is not asked for again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import write_whole
from ..match import Rules
from ..players import Player
from ..records import GameRecord
from . import optimality
from .average_policy import average_policy
from .exploitability import Exploitability, measure
from .information_sets import GameTree, game_tree
from .optimality import NotLost, Optimality
from .policy_reading import Reading, Score, read_player, read_scores
from .sealed import seal, unseal
from .tables import aligned
from .tabulated import uniform

#: Above this share of answers that were not among those scored, sampling tells more.
UNSEEN = 0.05


@dataclass(frozen=True)
class Exploited:
    """The exploitability of a policy, and how it was read: "scores", "samples", or "exact"."""

    policy: str
    by: str
    figures: Exploitability


@dataclass(frozen=True)
class Optimal:
    """The shares of optimal moves of a policy: over all decisions, and over those against random play."""

    policy: str
    game: str
    by: str
    all: Optimality
    against_random: Optimality


@dataclass(frozen=True)
class Unbeaten:
    """A policy's games against perfect play."""

    policy: str
    opponent: str
    game: str
    figures: NotLost


@dataclass(frozen=True)
class Yardsticks:
    """All of them."""

    exploitability: Sequence[Exploited] = ()
    optimality: Sequence[Optimal] = ()
    not_lost: Sequence[Unbeaten] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "exploitability": [
                {
                    "policy": one.policy,
                    "by": one.by,
                    **asdict(one.figures),
                    "exploitability": one.figures.exploitability,
                }
                for one in self.exploitability
            ],
            "optimality": [asdict(one) for one in self.optimality],
            "not_lost": [
                {"policy": one.policy, "opponent": one.opponent, "game": one.game, **asdict(one.figures)}
                for one in self.not_lost
            ],
        }


class Readings:
    """What was read of policies, on the disk.

    Args:
        folder: the evaluation's.
        show: tells of a file that is damaged; its policy is read again.
    """

    def __init__(self, folder: Path, show: Callable[[str], None] = print) -> None:
        self.folder, self.show = folder / "readings", show

    def find(self, policy: str, game: str, how: Mapping[str, Any]) -> Reading | None:
        """What was read before in the same way; None: nothing."""
        file, tree = self._file(policy, game), game_tree(game)
        try:
            data = json.loads(unseal(file.read_bytes()))
            if data["how"] != _plain(tree, how):
                return None
            counts = None if data["counts"] is None else np.array(data["counts"], dtype=np.int64)
            return Reading(tree, np.array(data["table"]), counts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.show(f"{file}: cannot be read ({error}); {policy} is read again")
            return None

    def keep(self, policy: str, game: str, how: Mapping[str, Any], reading: Reading) -> None:
        counts = None if reading.counts is None else reading.counts.tolist()
        rows = [
            {"player": one.player, "private": str(one.private), "history": list(one.history), "actions": one.actions}
            for one in reading.tree.information_sets
        ]
        data = {
            "how": _plain(reading.tree, how),
            "table": reading.table.tolist(),
            "counts": counts,
            "information_sets": rows,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(policy, game), seal(json.dumps(data).encode()).decode())

    def _file(self, policy: str, game: str) -> Path:
        return self.folder / f"{file_name(policy)}-{game}.json"


def file_name(policy: str) -> str:
    """A policy's name as a file's, one of its own."""
    plain = re.sub(r"[^\w.-]+", "_", policy)
    return plain if plain == policy else f"{plain}-{hashlib.blake2b(policy.encode(), digest_size=4).hexdigest()}"


def _plain(tree: GameTree, how: Mapping[str, Any]) -> Any:
    """How a policy was read, as JSON has it, with the positions that it was shown."""
    shown = hashlib.blake2b("\0".join(one.observation for one in tree.information_sets).encode(), digest_size=16)
    return json.loads(json.dumps({**how, "observations": shown.hexdigest()}))


def read_by_scores(game: str, score: Score) -> Reading:
    return read_scores(game_tree(game), score)


async def read_by_samples(
    game: str, player: Player, samples: int, seed: int, rules: Rules, concurrency: int
) -> Reading:
    return await read_player(game_tree(game), player, samples, seed, rules, concurrency)


def exploited(
    game: str, readings: Mapping[str, Reading], runs: Mapping[str, Sequence[str]], by: str, rules: Rules, seed: int
) -> list[Exploited]:
    """Every policy's exploitability in a game, beside that of random play.

    Args:
        readings: by policy.
        runs: the names of each run's snapshots; of two and more, their average is measured, too.
        by: how they were read.
        rules: what illegal answers cost.
        seed: of the intervals.
    """
    tree = game_tree(game)
    whole = importlib.util.find_spec("pyspiel") is not None
    rows = [Exploited(name, by, measure(one, rules, seed=seed, with_openspiel=whole)) for name, one in readings.items()]
    for run, names in runs.items():
        tables = [readings[name].table for name in names if name in readings]
        if len(tables) > 1 and tree.is_tree:
            average = Reading(tree, average_policy(tree, tables))
            rows.append(
                Exploited(f"{run}, average of {len(tables)}", by, measure(average, rules, with_openspiel=whole))
            )
    random = Reading(tree, uniform(tree))
    return [*rows, Exploited("(uniform play)", "exact", measure(random, rules, with_openspiel=whole))]


def optimal(game: str, readings: Mapping[str, Reading], by: str) -> list[Optimal]:
    """Every policy's shares of optimal moves in a game, beside those of random play."""
    tree = game_tree(game)
    everybody = {name: (by, one) for name, one in readings.items()}
    everybody["(uniform play)"] = ("exact", Reading(tree, uniform(tree)))
    return [
        Optimal(
            name,
            game,
            how,
            optimality.over_all_decisions(tree, one.table, counts=one.counts),
            optimality.against_uniform(tree, one.table, one.counts),
        )
        for name, (how, one) in everybody.items()
    ]


def unbeaten(records: Iterable[GameRecord], perfect: Iterable[str], games: Iterable[str]) -> list[Unbeaten]:
    """How everybody fared against perfect players where perfect play does not lose.

    Args:
        perfect: the names of perfect players.
        games: ids of games in which nothing is hidden.
    """
    names, ids = set(perfect), set(games)
    by_place: dict[tuple[str, str, str], list[GameRecord]] = {}
    for record in records:
        for player, other in (record.players, record.players[::-1]):
            if record.discarded is None and record.game in ids and other in names and player not in names:
                by_place.setdefault((player, other, record.game), []).append(record)
    return [Unbeaten(*place, optimality.not_lost(played, place[0])) for place, played in sorted(by_place.items())]


def tables(found: Yardsticks) -> list[str]:
    """For people."""
    return [
        part
        for part in (_exploitability(found.exploitability), _optimality(found.optimality), _not_lost(found.not_lost))
        if part
    ]


def _exploitability(rows: Sequence[Exploited]) -> str:
    if not rows:
        return ""
    header = ("policy", "game", "read by", "NashConv", "95%", "exploitability", "value", "against uniform", "illegal")
    header += ("largest", "NashConv as judged")  # type: ignore[assignment]
    cells = [
        (
            one.policy,
            one.figures.game,
            one.by,
            f"{one.figures.nash_conv:.4f}",
            "-" if one.figures.interval is None else "[{:.4f}, {:.4f}]".format(*one.figures.interval),
            f"{one.figures.exploitability:.4f}",
            f"{one.figures.value:+.4f}",
            "{:+.4f} {:+.4f}".format(*one.figures.against_uniform),
            f"{one.figures.illegal[0]:.1%}",
            f"{one.figures.illegal[1]:.1%}",
            f"{one.figures.nash_conv_as_judged:.4f}",
        )
        for one in rows
    ]
    lines = [
        "Exploitability: in the literature's unit, of the policy given that its answers are legal; illegal: mean and "
        "largest share over the information sets",
        aligned([header, *cells], left=3),
    ]
    hidden = [one.policy for one in rows if one.by == "scores" and one.figures.illegal[0] > UNSEEN]
    if hidden:
        lines.append(
            f"note: {', '.join(hidden)}: more than {UNSEEN:.0%} of the answers are not among the plain ones that were "
            "scored; exploitability.by=samples reads them all"
        )
    return "\n".join(lines)


def _optimality(rows: Sequence[Optimal]) -> str:
    if not rows:
        return ""
    header = ("policy", "game", "read by", "all decisions", "95%", "critical", "against random", "95%", "critical")

    def share(figures: Optimality) -> tuple[str, str, str]:
        limits = "-" if figures.interval is None else "[{:.1%}, {:.1%}]".format(*figures.interval)
        return f"{figures.share:.1%}", limits, "-" if figures.critical is None else f"{figures.critical:.1%}"

    cells = [(one.policy, one.game, one.by, *share(one.all), *share(one.against_random)) for one in rows]
    return (
        "Optimal moves: share of what the policy answers, over all decisions that can be reached, and as they come "
        f"against random play; critical: where a legal move is not optimal\n{aligned([header, *cells], left=3)}"
    )


def _not_lost(rows: Sequence[Unbeaten]) -> str:
    if not rows:
        return ""
    header = ("policy", "opponent", "game", "not lost", "95%", "games")
    cells = [
        (
            one.policy,
            one.opponent,
            one.game,
            f"{one.figures.share:.1%}",
            "[{:.1%}, {:.1%}]".format(*one.figures.interval),
            f"n={one.figures.win + one.figures.draw + one.figures.loss}",
        )
        for one in rows
    ]
    return f"Not lost against perfect play\n{aligned([header, *cells], left=3)}"
