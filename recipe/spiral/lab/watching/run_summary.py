"""What a run shows at its end: its first and last validation, and where everything lies."""

from __future__ import annotations

from pathlib import Path

from ...processes.run_log import LOG
from ...storage.checkpoints import latest
from ...storage.run_files import METRICS, read_metrics
from ...training.metrics import SHARES, validated_roles, validation_metrics
from ..own_command import command
from ..record_folder import RecordFolder

#: Exact measures that the summary has: a metric's name, what it is called, and how its values are written.
_EXACT = {"nash_conv": ("NashConv", ".3f"), "optimal": ("optimal moves", ".1%")}


def summary(run_dir: Path, checkpoints: Path, game: str | None) -> list[str]:
    """A table of the first and the last validation by opponent, game and role, and of exact measures; the run's folders
    below it, and the commands to look at the run and to play ``game`` against it (None: it has none)."""
    folder = RecordFolder(run_dir / "games")
    lines = []
    if validated := folder.steps("val"):
        first, last = validated[0], validated[-1]
        before, after = (validation_metrics(list(folder.read_step("val", step))) for step in (first, last))
        header = "".join(f"{column:>18}" for column in SHARES)
        lines.append(f"validation at step {first} -> {last}")
        roles, exact = validated_roles(after), _exact(run_dir)
        width = max([24, *(len(role) - len("val-core/") + 2 for role in roles), *(len(name) + 2 for name, _ in exact)])
        lines.append(f"{'game, role':<{width}}{header}{'reward':>18}{'games':>8}")
        for role in roles:
            cells = "".join(f"{_change(before, after, f'{role}/{column}', '.1%'):>18}" for column in SHARES)
            cells += f"{_change(before, after, f'{role}/reward', '+.2f'):>18}"
            lines.append(f"{role.removeprefix('val-core/'):<{width}}{cells}{after[f'{role}/games']:>8.0f}")
        lines += [f"{name:<{width}}{change:>18}" for name, change in exact]
    lines += [f"games:        {folder.path}", f"log:          {run_dir / LOG}", f"checkpoints:  {checkpoints}"]
    if (run_dir / "tensorboard").is_dir():
        lines.append(f"tensorboard:  tensorboard --logdir {run_dir / 'tensorboard'}")
    if (run_dir / "wandb").is_dir():
        lines.append(f"wandb:        {run_dir / 'wandb'}")
    lines.append(f"look at it:   {command('report', run_dir)}")
    if game is not None and latest(checkpoints) is not None:
        lines.append(f"play it:      {command('play', game, run_dir)}")
    return lines


def _exact(run_dir: Path) -> list[tuple[str, str]]:
    """The exact measures that were taken, each with its first and its last value."""
    found: dict[str, list[float]] = {}
    for logged, _ in read_metrics(run_dir / METRICS) if (run_dir / METRICS).is_file() else ():
        for name, value in logged.metrics.items():
            core, _, measure = name.rpartition("/")
            if value is not None and measure in _EXACT and core.count("/") == 1 and core.startswith("val-core/"):
                found.setdefault(name, []).append(value)
    rows = []
    for name, values in sorted(found.items()):
        _, game, measure = name.split("/")
        said, form = _EXACT[measure]
        rows.append((f"{game}, {said}", f"{values[0]:{form}} -> {values[-1]:{form}}"))
    return rows


def _change(before: dict[str, float], after: dict[str, float], name: str, form: str) -> str:
    earlier = format(before[name], form) if name in before else "-"
    return f"{earlier} -> {format(after[name], form)}"
