"""What people are shown of an evaluation: for each policy what a player of the games would say, and one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from .exploitability.exploitability_metrics import UNIFORM, UNSEEN

#: Columns of a terminal, and of a name.
WIDTH, NAME = 100, 24
#: A row of ``results.json``.
Row = Mapping[str, Any]
_VERBS = {"win": "beats", "draw": "draws with", "loss": "loses to"}
#: Above this share of a policy's games, those that it ended by an illegal answer are told of.
_ILLEGAL = 0.005


def summary(policies: Sequence[str], figures: Mapping[str, Any]) -> str:
    """The verdict, the table, the ratings and the notes."""
    verdict = [_wrapped(line) for policy in policies for line in _verdict(policy, figures)]
    table = [_table(figures["results"])] if figures["results"] else []
    ratings = [_wrapped(_elo(figures["ratings"][0]))] if figures["ratings"] else []
    return "\n\n".join(["\n".join(verdict), *table, *ratings, *map(_wrapped, figures["notes"])]).strip()


def _verdict(policy: str, figures: Mapping[str, Any]) -> Iterator[str]:
    """A line for each game."""
    by_game: dict[str, list[str]] = {}
    matches: dict[tuple[str, str], list[Row]] = {}
    for row in figures["results"]:
        if row["policy"] == policy and row["games"]:
            matches.setdefault((row["game"], row["opponent"]), []).append(row)
    for (game, opponent), rows in matches.items():
        by_game.setdefault(game, []).append(_match(opponent, rows))
    for game in by_game:
        both = [row for (name, _), rows in matches.items() if name == game for row in rows if row["role"] is None]
        illegal = sum(row["invalid"]["count"] for row in both) / sum(row["games"] for row in both)
        if illegal > _ILLEGAL:
            by_game[game].append(f"ends {illegal:.0%} of its games by an illegal answer")
    for kind, tell in (("exploitability", _exploited), ("optimality", _optimal)):
        for row in figures[kind]:
            if row["policy"] == policy or row["policy"].startswith(f"{policy.partition('/')[0]}, average of"):
                uniform = next(r for r in figures[kind] if (r["policy"], r["game"]) == (UNIFORM, row["game"]))
                by_game.setdefault(row["game"], []).append(tell(row, uniform))
    for score in figures["benchmarks"].get(policy, ()):
        told = f"{_percent(score['avg'])} of {score['questions']} questions answered right"
        by_game.setdefault(score["benchmark"], []).append(
            told + (f" ({score['samples']} answers to each)" if score["samples"] > 1 else "")
        )
    for game, parts in by_game.items():
        yield f"{policy} in {game}: {'; '.join(parts)}"


def _match(opponent: str, rows: Sequence[Row]) -> str:
    """``beats random in 55% as player 0 and 25% as player 1``: by the most frequent end."""
    (both,) = (row for row in rows if row["role"] is None)
    end = max(_VERBS, key=lambda name: both[name]["count"])
    roles = [f"{row[end]['value']:.0%} as player {row['role']}" for row in rows if row["role"] is not None]
    return f"{_VERBS[end]} {opponent} in {' and '.join(roles)}"


def _exploited(row: Row, uniform: Row) -> str:
    whose = "" if ", average of" not in row["policy"] else f"of the average of its run's {row['policy'].split()[-1]} "
    limits = "" if row["interval"] is None else " [{:.3f}, {:.3f}]".format(*row["interval"])
    hidden = row["by"] == "scores" and row["illegal"][0] > UNSEEN
    return (
        f"NashConv {whose}{row['nash_conv']:.3f}{limits} (0 is an equilibrium, random play has "
        f"{uniform['nash_conv']:.3f})"
    ) + (
        f"; {row['illegal'][0]:.0%} of its answers are not the plain ones that were scored: exploitability.by=samples "
        "takes all answers"
        if hidden
        else ""
    )


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


def _elo(rated: Mapping[str, Any]) -> str:
    zero = "the mean" if rated["anchor"] is None else rated["anchor"]
    players = ", ".join(f"{each['name']} {each['elo']:.0f}" for each in rated["players"])
    return f"Elo from {rated['scope']} ({zero} is 0): {players}" + (f". {rated['note']}" if rated["note"] else "")


def _percent(rate: Mapping[str, Any], sign: str = "%") -> str:
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
