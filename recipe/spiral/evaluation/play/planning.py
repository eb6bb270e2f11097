"""From the config to the plan: which match-ups there are, and which of them cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...games import resolve
from ..policies.policies import Policy
from .matchups import Chance, MatchUp, Plan, cross, round_robin
from .own_past import own_past_match_ups

#: What ``match_ups`` may name.
KINDS = ("cross", "round_robin", "own_past")
#: Between the steps of two runs: no snapshot is another run's past.
_APART = 10**9


@dataclass(frozen=True)
class Schedule:
    """What will be played.

    Attributes:
        plan: the games.
        steps: each snapshot's by name, so that those of different runs are never a lag apart.
        left_out: why some match-ups are not in the plan.
    """

    plan: Plan
    steps: Mapping[str, int]
    left_out: tuple[str, ...]


def schedule(
    policies: Sequence[Policy],
    opponents: Sequence[Policy],
    games: Iterable[str],
    kinds: Any,
    games_per_role: int,
    seed: int,
    chance: Chance,
    lag: int,
) -> Schedule:
    """The match-ups of the kinds that are asked for, each once.

    Args:
        policies: who is evaluated.
        opponents: whom each of them meets; in a round robin the anchors.
        games: ids or aliases.
        kinds: "cross": each policy against each opponent; "round_robin": everybody against everybody; "own_past": each
            snapshot of a run against the one ``lag`` steps before.
        games_per_role, seed, chance: of the plan.
        lag: in steps.

    Raises:
        ValueError: an unknown kind; or nothing to play.
    """
    if isinstance(kinds, str) or not isinstance(kinds, Iterable) or (unknown := [k for k in kinds if k not in KINDS]):
        told = kinds if isinstance(kinds, str) or not isinstance(kinds, Iterable) else ", ".join(map(str, unknown))
        raise ValueError(f"match_ups: {told}: must be a list of {', '.join(KINDS)}")
    ids = list(dict.fromkeys(resolve(str(game)) for game in games))
    known = {policy.name: policy for policy in (*policies, *opponents)}
    ours, others = [policy.name for policy in policies], [policy.name for policy in opponents]
    steps = _steps(policies)
    wanted: list[MatchUp] = []
    for kind in dict.fromkeys(kinds):
        if kind == "cross":
            wanted += cross(ours, others, ids)
        elif kind == "round_robin":
            wanted += round_robin(ours, ids, others)
        elif len(steps) < 2:
            raise ValueError("match_ups=[own_past]: policies has no run with two snapshots; take match_ups=[cross]")
        else:
            wanted += own_past_match_ups(steps, ids, lag)
    playable, left_out = [], []
    for match_up in dict.fromkeys(wanted):
        if reason := known[match_up.policy].unable(match_up.game) or known[match_up.opponent].unable(match_up.game):
            left_out.append(f"{match_up.policy} against {match_up.opponent} in {match_up.game}: {reason}")
        else:
            playable.append(match_up)
    if wanted and not playable:
        raise ValueError(f"games: nothing can be played: {left_out[0]}")
    return Schedule(Plan(tuple(playable), games_per_role, seed, chance), steps, tuple(left_out))


def _steps(policies: Sequence[Policy]) -> dict[str, int]:
    runs = list(dict.fromkeys(policy.run for policy in policies if policy.run is not None))
    return {
        policy.name: policy.step + _APART * runs.index(policy.run)
        for policy in policies
        if policy.step is not None and policy.run is not None
    }
