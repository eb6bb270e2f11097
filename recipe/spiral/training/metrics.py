"""Metrics of games, which are computed from records (games without rows count, and padding never does), and of a step's
time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import fsum
from statistics import NormalDist, fmean

from ..players.records import RESULTS, SELF_PLAY, GameRecord, Termination, Turn
from .credit import REASONS

VERDICTS = ("no_answer", "unreadable", "illegal", "truncated")
DISCARDED = ("void", "draw", "surplus", "stale")
#: Of games.
SHARES = (*RESULTS, "invalid")
#: The metrics of validation's games that go to ``val-core``; the others go to ``val-aux``.
_CORE = (*SHARES, "reward", "turns", "games")
#: verl's timers of what is no overhead: playing, forward and backward passes, and the sync of weights.
WORK = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")
#: The normal distribution's quantile for 95% intervals.
Z = NormalDist().inv_cdf(0.975)


def role_metrics(records: Iterable[GameRecord], prefix: str) -> dict[str, float]:
    """``{prefix}/{game}/p{role}/...`` for every game and every role that is trained.

    win, draw, loss, invalid: shares of the games; ``invalid`` counts games that this role ended with an illegal turn.
    games: their number. reward: mean outcome. turns: own turns per game. prompt_too_long: share of the games that a
    prompt ended, of either player. Where a model played: response_tokens (mean per turn), truncated (share of the
    turns, also where the rules read truncated responses), and entropy (nats per token: the mean of -log p over the
    sampled tokens).
    """
    games: dict[tuple[str, int], list[GameRecord]] = defaultdict(list)
    for record in records:
        for role in record.trainable:
            games[record.game, role].append(record)
    metrics: dict[str, float] = {}
    for (game, role), played in sorted(games.items()):
        name = f"{prefix}/{game}/p{role}"
        results: Counter[str] = Counter(record.result(role) for record in played)
        turns = [turn for record in played for turn in record.turns_of(role)]
        invalid = sum(turn.verdict != "legal" for turn in turns)
        metrics |= {f"{name}/{result}": results[result] / len(played) for result in RESULTS}
        metrics |= {
            f"{name}/invalid": invalid / len(played),
            f"{name}/turns": len(turns) / len(played),
            f"{name}/reward": fmean(record.rewards[role] for record in played),
            f"{name}/games": float(len(played)),
            f"{name}/prompt_too_long": _ended_by("prompt_too_long", played),
        }
        if tokens := [len(turn.tokens.response_ids) for turn in turns if turn.tokens is not None]:
            metrics[f"{name}/response_tokens"] = fmean(tokens)
            metrics[f"{name}/truncated"] = sum(turn.truncated for turn in turns) / len(turns)
        if (entropy := _entropy(turns)) is not None:
            metrics[f"{name}/entropy"] = entropy
    return metrics


def training_metrics(records: Sequence[GameRecord], discarded: Sequence[GameRecord]) -> dict[str, float]:
    """Metrics of a training step: ``role_metrics``, baselines, advantages, illegal turns by kind, counts."""
    metrics = share_metrics(records)
    baselines: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for role, baseline in enumerate(record.baselines):
            if baseline is not None:
                kind = "" if record.opponent == SELF_PLAY else f"_{record.opponent}"
                baselines[f"games/{record.game}/p{role}/baseline{kind}"].append(baseline)
    metrics |= {name: fmean(values) for name, values in baselines.items()}
    advantages: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        for turn in record.turns:
            if turn.advantage is not None:
                advantages[record.game, turn.player].append(turn.advantage)
    for (game, role), values in sorted(advantages.items()):
        mean = fmean(values)
        metrics[f"games/{game}/p{role}/advantage_mean"] = mean
        metrics[f"games/{game}/p{role}/advantage_std"] = math.dist(values, [mean] * len(values)) / len(values) ** 0.5
    turns = [turn for record in records for turn in record.trainable_turns()]
    verdicts: Counter[str] = Counter(turn.verdict for turn in turns)
    metrics |= {f"turns/{verdict}": verdicts[verdict] / max(len(turns), 1) for verdict in VERDICTS}
    metrics |= {
        "turns/invalid": sum(verdicts[verdict] for verdict in VERDICTS) / max(len(turns), 1),
        "turns/count": float(len(turns)),
        "turns/response_tokens": fmean([len(turn.tokens.response_ids) for turn in turns if turn.tokens] or [0.0]),
        "turns/entropy": _entropy(turns) or 0.0,
        "games/count": float(len(records)),
        "games/turn_cap": _ended_by("turn_cap", records),
        "games/prompt_too_long": _ended_by("prompt_too_long", records),
        "games/without_rows": float(sum(not all(map(record.turns_of, record.trainable)) for record in records)),
    }
    left_out = Counter(turn.left_out for turn in turns)
    metrics |= {f"turns/left_out/{reason}": left_out[reason] / max(len(turns), 1) for reason in REASONS}
    reasons = Counter(record.discarded for record in discarded)
    metrics |= {f"games/discarded/{reason}": float(reasons[reason]) for reason in DISCARDED}
    return metrics


def share_metrics(records: Sequence[GameRecord]) -> dict[str, float]:
    """Of a step's games: ``role_metrics``, ``games/draw``, imbalances, and what was played against whom."""
    metrics = role_metrics(records, "games") | _imbalances(records)
    metrics["games/draw"] = sum(record.result(0) == "draw" for record in records) / max(len(records), 1)
    if any(record.opponent != SELF_PLAY for record in records):
        metrics |= opponent_metrics(records)
    return metrics


def _imbalances(records: Iterable[GameRecord]) -> dict[str, float]:
    """``games/{game}/role_imbalance``: |wins of player 0 - wins of player 1| as a share of decided self-play games."""
    wins: dict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.trainable == (0, 1):
            mine, other = record.rewards
            wins[record.game].append((mine > other) - (mine < other))
    return {
        f"games/{game}/role_imbalance": abs(sum(results)) / max(sum(map(abs, results)), 1)
        for game, results in sorted(wins.items())
    }


def _entropy(turns: Iterable[Turn]) -> float | None:
    """The mean of -log p over the tokens of these turns, whose mean is an unbiased estimate of the entropy; None where
    there are no tokens."""
    log_probs = [turn.tokens.log_probs for turn in turns if turn.tokens and turn.tokens.log_probs]
    tokens = sum(map(len, log_probs))
    return -fsum(chain.from_iterable(log_probs)) / tokens if tokens else None


def _ended_by(termination: Termination, records: Sequence[GameRecord]) -> float:
    """The share of the games that ended so."""
    return sum(record.termination == termination for record in records) / max(len(records), 1)


def opponent_metrics(records: Iterable[GameRecord]) -> dict[str, float]:
    """``opponents/{kind}/...``: the share of all games, and ``role_metrics`` of those that were not self-play."""
    kinds: dict[str, list[GameRecord]] = defaultdict(list)
    for record in records:
        kinds[record.opponent].append(record)
    total = max(sum(map(len, kinds.values())), 1)
    metrics: dict[str, float] = {}
    for kind, played in sorted(kinds.items()):
        metrics[f"opponents/{kind}/share"] = len(played) / total
        if kind != SELF_PLAY:
            metrics |= role_metrics(played, f"opponents/{kind}")
            invalid = sum(turn.verdict != "legal" for turn in _opponents_turns(played))
            metrics[f"opponents/{kind}/invalid"] = invalid / max(len(played), 1)
            spent = [len(turn.tokens.response_ids) for turn in _opponents_turns(played) if turn.tokens]
            metrics[f"opponents/{kind}/response_tokens"] = float(sum(spent))
    return metrics


def _opponents_turns(records: Iterable[GameRecord]) -> list[Turn]:
    return [turn for record in records for turn in record.turns if turn.player not in record.trainable]


def validation_metrics(games: Iterable[GameRecord]) -> dict[str, float]:
    """``val-core/{opponent}/{game}/p{role}/{win,draw,loss,invalid,reward,turns,games}``; also without the opponent.

    Metrics without the opponent are those of the first opponent that plays the game. ``val-aux`` has the rest of
    ``role_metrics``, the 95 % interval (Wilson's) of each share of games as ``win_low`` and ``win_high``, and ``void``:
    how many of these games were discarded because they failed.
    """
    metrics: dict[str, float] = {}
    first: set[str] = set()
    opponents: dict[str, list[GameRecord]] = defaultdict(list)
    for record in sorted(games, key=lambda record: record.key.index):
        opponents[record.opponent].append(record)
    for opponent, met in opponents.items():
        played = [record for record in met if record.discarded is None]
        new = {record.game for record in met} - first
        first |= new
        metrics |= role_metrics([record for record in played if record.game in new], "val")
        named = role_metrics(played, f"val/{opponent}")
        metrics |= named | _intervals(named)
        void = Counter((record.game, role) for record in met if record.discarded == "void" for role in record.trainable)
        metrics |= {f"val/{opponent}/{game}/p{role}/void": float(count) for (game, role), count in void.items()}
    return {
        ("val-core" if name.rsplit("/", 1)[1] in _CORE else "val-aux") + name.removeprefix("val"): value
        for name, value in metrics.items()
    }


def _intervals(metrics: Mapping[str, float]) -> dict[str, float]:
    """The ends of the interval of each share of games."""
    ends: dict[str, float] = {}
    for name, share in metrics.items():
        role, what = name.rsplit("/", 1)
        if what in SHARES:
            games = round(metrics[f"{role}/games"])
            ends[f"{name}_low"], ends[f"{name}_high"] = wilson(round(share * games), games)
    return ends


def validated_roles(metrics: Mapping[str, float], every_opponent: bool = True) -> list[str]:
    """The prefixes of a validation's shares: ``val-core/{game}/p{role}``.

    With several opponents, and ``every_opponent``, they are ``val-core/{opponent}/{game}/p{role}``.
    """
    roles = sorted(name.removesuffix("/win") for name in metrics if name.startswith("val-") and name.endswith("/win"))
    named = [role for role in roles if role.count("/") == 3]
    several = len({role.split("/")[1] for role in named}) > 1
    return named if several and every_opponent else [role for role in roles if role.count("/") == 2]


def speed_metrics(games: int, seconds: Mapping[str, float]) -> dict[str, float]:
    """``perf/...`` of a step: games per second, and the share of the step that is neither playing, forward, backward,
    nor the sync of weights. ``seconds`` are verl's timers."""
    step = seconds["step"]
    worked = sum(seconds.get(name, 0.0) for name in WORK)
    return {"perf/games_per_second": games / step, "perf/overhead": 1 - worked / step}


def wilson(count: float, total: float) -> tuple[float, float]:
    """The 95% interval of a share (E. B. Wilson, JASA 22, 1927; Brown, Cai and DasGupta, Stat. Sci. 16, 2001, eq. 4).
    SciPy has it for whole counts only; here a draw may count as half a win.

    Args:
        count: from 0 to ``total``. It may be a sum of values from 0 to 1; then the interval is rather too wide.
        total: at least 1.
    """
    share = count / total
    scale = 1 + Z * Z / total
    centre = (share + Z * Z / (2 * total)) / scale
    half = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total)) / scale
    # Exact at the ends, where rounding would leave 1e-17.
    return (0.0 if count == 0 else max(0.0, centre - half), 1.0 if count == total else min(1.0, centre + half))
