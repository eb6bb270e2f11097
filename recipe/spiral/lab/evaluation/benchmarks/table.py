"""A run's benchmarks as a table, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ..outputs.tables import aligned
from .benchmark_metrics import Rate, Score
from .catalog import CATALOG, PAPER, PAPER_AVERAGES

HEAD = (
    *("benchmark", "questions", "k", "avg@k", "95 %", "pass@k", "maj@k"),
    *("truncated", "no answer", "not graded", "tokens"),
)


def table(scores: Sequence[Score], paper_model: str | None = None) -> str:
    """A row for each benchmark, their mean, and the paper's: of this model, or of all its models."""
    known = list(CATALOG)
    rows = [_row(score) for score in sorted(scores, key=lambda score: known.index(score.benchmark))]
    mean = Rate.of([score.avg.value for score in scores])  # each benchmark with the same weight, as in the paper
    whole = {score.benchmark for score in scores if score.questions >= CATALOG[score.benchmark].questions}
    note = "" if whole == set(CATALOG) else ", not the paper's eight benchmarks with all their questions"
    means = [["mean over benchmarks, avg@k", "%", "benchmarks"], [f"this run{note}", _percent(mean), str(mean.count)]]
    for model in [paper_model] if paper_model else PAPER_AVERAGES:
        for training, percent in PAPER_AVERAGES[model].items():
            means.append([f"{PAPER}: {model}, {training}", f"{percent:.1f}", str(len(CATALOG))])
    return "\n\n".join([aligned([HEAD, *rows], left=1), aligned(means, left=1), _legend(scores)])


def _row(score: Score) -> list[str]:
    known = CATALOG[score.benchmark]
    asked = str(score.questions) if score.questions >= known.questions else f"{score.questions} of {known.questions}"
    low, high = score.avg.low, score.avg.high
    interval = "-" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"
    failed = Rate(score.time_outs.value + score.crashes.value, score.time_outs.count)
    return [
        known.title,
        asked,
        str(score.samples),
        _percent(score.avg),
        interval,
        _percent(score.pass_at[score.samples]),
        _percent(score.maj),
        _share(score.truncated),
        _share(score.no_answer),
        _share(failed),
        f"{score.tokens.value:.0f} ({score.tokens.count})",
    ]


def _legend(scores: Sequence[Score]) -> str:
    text = (
        "avg@k, pass@k and maj@k in percent of questions, with a 95 % interval over questions; other shares are of "
        "answers, with their number. Not graded: the grader timed out or crashed; such answers count as wrong. The "
        "paper's numbers are means over its eight benchmarks."
    )
    compared = [score.comparisons_failed for score in scores]
    failed = sum(round(rate.value * rate.count) for rate in compared)
    total = sum(rate.count for rate in compared)
    return text + (f" For maj@k, {failed} of {total} comparisons of answers failed." if failed else "")


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f}"


def _share(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} % ({rate.count})"
