"""From the config to the plan: which match-ups there are, and which of them cannot be played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..policies.evaluated_policy import Policy
from ..settings import Settings
from .matchups import MatchUp, Plan, cross, own_past, round_robin

#: Added to the steps of the second run, twice to those of the third: no snapshot is another run's past.
_APART = 10**9


@dataclass(frozen=True)
class Schedule:
    """What will be played, why some match-ups will not, and each snapshot's step by its name.

    The steps are such that snapshots of different runs are never a lag apart.
    """

    plan: Plan
    steps: Mapping[str, int]
    left_out: tuple[str, ...]


def schedule(policies: Sequence[Policy], opponents: Sequence[Policy], settings: Settings) -> Schedule:
    """The match-ups of the kinds that ``settings.match_ups`` names, each once. In a round robin opponents are anchors.

    Raises:
        ValueError: there is nothing to play, though match-ups are named.
    """
    games = tuple(dict.fromkeys(settings.games))
    names, anchors = [policy.name for policy in policies], [policy.name for policy in opponents]
    runs = list(dict.fromkeys(policy.run for policy in policies if policy.run is not None))
    steps = {
        policy.name: policy.step + _APART * runs.index(policy.run)
        for policy in policies
        if policy.step is not None and policy.run is not None
    }
    wanted: list[MatchUp] = []
    for kind in dict.fromkeys(settings.match_ups):
        if kind == "cross":
            wanted += cross(names, anchors, games)
        elif kind == "round_robin":
            wanted += round_robin(names, games, anchors)
        elif len(steps) < 2:
            raise ValueError("match_ups=[own_past]: policies has no run with two snapshots; take match_ups=[cross]")
        else:
            wanted += own_past(steps, games, settings.lag)
    known = {policy.name: policy for policy in (*policies, *opponents)}
    playable, left_out = [], []
    for match_up in dict.fromkeys(wanted):
        if reason := known[match_up.policy].unable(match_up.game) or known[match_up.opponent].unable(match_up.game):
            left_out.append(f"{match_up.policy} against {match_up.opponent} in {match_up.game}: {reason}")
        else:
            playable.append(match_up)
    if wanted and not playable:
        raise ValueError(f"games: nothing can be played: {left_out[0]}")
    plan = Plan(tuple(playable), settings.games_per_role, settings.seed, settings.randomness)
    return Schedule(plan, steps, tuple(left_out))
