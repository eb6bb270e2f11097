"""An evaluation's results: ``results.json`` for programs and the report's pages, and what people are shown: for each
policy what a player of the games would say, and one table.

``results.json``, version 2; what there is none of is null, shares are from 0 to 1, intervals 95%::

    version
    manifest:  seed, randomness, policies, settings
    results:   [{policy, opponent, game, role (the policy's: 0, 1, or null: both), games, void (a player or the game
                 failed: in no rate), win, draw, loss (by the rewards), invalid, opponent_invalid (ended by an illegal
                 turn), turn_cap (ended by it: draws), prompt_too_long (lost by both): {count, of, value, low, high},
                 reward, turns (the policy's in a game): {value, error (standard), of},
                 response_tokens, truncated (the policy's per turn): {value, total, turns}}]
    ratings:   [{scope ("all games" or a game), note (where they do not measure strength),
                 anchor (whose Elo is 0; null: the mean is 0),
                 players: [{name, elo, low, high, games, points (a draw is half a point)}], the best first,
                 games: [{game, first_player (the advantage of playing first): {elo, low, high},
                          draws (their probability between equals), games}],
                 head_to_head: [{name, other, wins, draws, losses, games, score, low, high}]}]
    exploitability: [{policy, by, game, nash_conv, interval, gains, value, illegal (mean, largest), illegal_in_play,
                 nash_conv_as_judged}]
    optimality: [{policy, game, by, optimal: {share, interval}, lost_to_perfect: [as player 0, as player 1], illegal}]
    benchmarks: {policy: [{benchmark, questions, samples (of each), avg, pass_at {k: ...}, maj (avg@k, pass@k, maj@k),
                 truncated, no_answer (without a closed box), unreadable, time_outs, crashes (of the grader: wrong),
                 comparisons_failed (of wrong answers, for maj), tokens (in an answer): {value, count, low, high}}]}
    notes:     [what was not played, and why]
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

from ...storage.disk import write_whole
from ..own_command import command
from .evaluation_folder import GAMES
from .measuring import UNIFORM
from .ratings import Row

VERSION = 2
RESULTS = "results"
#: Columns of a terminal, and of a name.
WIDTH, NAME = 100, 24
_VERBS = {"win": "beats", "draw": "draws with", "loss": "loses to"}
#: Above this share of answers that were not scored, sampling is recommended.
_UNSEEN = 0.05
#: Above this share of a policy's games, those that it ended by an illegal answer are told of.
_ILLEGAL = 0.005


def write_results(folder: Path, policies: Sequence[str], figures: Mapping[str, Any]) -> str:
    """Write ``results.json``; returns what people are shown of these policies."""
    data = {"version": VERSION, **figures}
    write_whole(folder / f"{RESULTS}.json", json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    verdict = [_wrapped(line) for policy in policies for line in _verdict(policy, figures)]
    table = [_table(figures["results"])] if figures["results"] else []
    ratings = [_wrapped(_elo(figures["ratings"][0]))] if figures["ratings"] else []
    text = "\n\n".join(["\n".join(verdict), *table, *ratings, *map(_wrapped, figures["notes"])]).strip()
    places = f"results: {folder / RESULTS}.json   games: {folder / GAMES}\nlook at it: {command('report', folder)}"
    return f"{text}\n\n{places}"


def _verdict(policy: str, figures: Mapping[str, Any]) -> Iterator[str]:
    """A line for each game and benchmark."""
    said: dict[str, list[str]] = defaultdict(list)
    games, ended = Counter[str](), Counter[str]()
    rows = [row for row in figures["results"] if row["policy"] == policy and row["games"]]
    for (game, opponent), of_roles in groupby(rows, lambda row: (row["game"], row["opponent"])):
        *roles, both = of_roles
        said[game].append(_match(opponent, roles, both))
        games[game] += both["games"]
        ended[game] += both["invalid"]["count"]
    for game, told in said.items():
        if (share := ended[game] / games[game]) > _ILLEGAL:
            told.append(f"ends {share:.0%} of its games by an illegal answer")
    for kind, tell in (("exploitability", _exploited), ("optimality", _optimal)):
        for row in figures[kind]:
            if row["policy"] == policy:
                uniform = next(r for r in figures[kind] if (r["policy"], r["game"]) == (UNIFORM, row["game"]))
                said[row["game"]].append(tell(row, uniform))
    for score in figures["benchmarks"].get(policy, ()):
        right = f"{_percent(score['avg'])} of {score['questions']} questions answered right"
        answers = f" ({score['samples']} answers to each)" if score["samples"] > 1 else ""
        said[score["benchmark"]].append(right + answers)
    for game, parts in said.items():
        yield f"{policy} in {game}: {'; '.join(parts)}"


def _match(opponent: str, roles: Sequence[Row], both: Row) -> str:
    """``beats random in 55% as player 0 and 25% as player 1``: by the most frequent end."""
    end = max(_VERBS, key=lambda name: both[name]["count"])
    shares = [f"{row[end]['value']:.0%} as player {row['role']}" for row in roles]
    return f"{_VERBS[end]} {opponent} in {' and '.join(shares)}"


def _exploited(row: Row, uniform: Row) -> str:
    limits = "" if row["interval"] is None else " [{:.3f}, {:.3f}]".format(*row["interval"])
    told = f"NashConv {row['nash_conv']:.3f}{limits} (0 is an equilibrium, random play has "
    told += f"{uniform['nash_conv']:.3f})"
    if row["by"] == "scores" and row["illegal"][0] > _UNSEEN:
        told += f"; {row['illegal'][0]:.0%} of its answers are not the plain ones that were scored: "
        told += "exploitability.by=samples takes all answers"
    return told


def _optimal(row: Row, uniform: Row) -> str:
    (first, second), most = row["lost_to_perfect"], uniform["lost_to_perfect"]
    return (
        f"by its probabilities {row['optimal']['share']:.0%} of its moves are optimal, and it loses {first:.1%} of the "
        f"games to perfect play as player 0 and {second:.1%} as player 1 (random play {most[0]:.1%} and {most[1]:.1%})"
    )


def _table(results: Sequence[Row]) -> str:
    """Percent of the games by match-up and role."""
    shown = [row for row in results if row["role"] is not None]
    wide, other = (max(6, *(len(_short(row[name])) for row in shown)) for name in ("policy", "opponent"))
    head = f"{'policy':<{wide + 2}}  {'against':<{other}}  role  {'won %':>13}  drawn  lost  illegal  games"
    lines = [head, "-" * len(head)]
    for game in dict.fromkeys(row["game"] for row in shown):
        lines.append(game)
        for row in (row for row in shown if row["game"] == game):
            drawn, lost, illegal = (f"{100 * (row[name]['value'] or 0):.0f}" for name in ("draw", "loss", "invalid"))
            lines.append(
                f"  {_short(row['policy']):<{wide}}  {_short(row['opponent']):<{other}}  {row['role']:>4}  "
                f"{_percent(row['win'], ''):>13}  {drawn:>5}  {lost:>4}  {illegal:>7}  {row['games']:>5}"
                + (f" +{row['void']} void" if row["void"] else "")
            )
    return "\n".join(lines)


def _elo(rated: Row) -> str:
    zero = "the mean" if rated["anchor"] is None else rated["anchor"]
    players = ", ".join(f"{each['name']} {each['elo']:.0f}" for each in rated["players"])
    return f"Elo from {rated['scope']} ({zero} is 0): {players}" + (f". {rated['note']}" if rated["note"] else "")


def _percent(rate: Row, sign: str = "%") -> str:
    """``56% [51, 61]``."""
    if rate["value"] is None:
        return "-"
    limits = "" if rate["low"] is None else f" [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"
    return f"{100 * rate['value']:.0f}{sign}{limits}"


def _short(name: str) -> str:
    """The end of a long name has a snapshot's step."""
    return name if len(name) <= NAME else f"..{name[2 - NAME :]}"


def _wrapped(line: str) -> str:
    return fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
