"""The lines of a run for people, one for each step.

The trainer runs in a process in whose output verl, Ray and vLLM print as well. So it writes its lines into a
file of their own, ``train.log``, which the driver prints, and which stays when the terminal is closed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..extensions import Objective
from ..players.records import RESULTS
from ..processes.run_log import LOG, duration
from ..storage.disk import append_line
from .metrics import SHARES, validated_roles

#: The phases of a step that are shown: the word in the line, and verl's name.
_PHASES = {"play": "gen", "update": "update_actor"}
#: Characters of a step's line.
WIDTH = 110


class Console:
    """Appends lines to ``run_dir/train.log``, in the trainer's process."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = run_dir / LOG
        self._clock = clock
        self._total: int | None = None
        #: What trains in place of the policy gradient.
        self.objective: Objective | None = None

    def say(self, line: str) -> None:
        append_line(self._log, line)

    def start(self, step: int, total: int) -> None:
        """Write the first line. ``step`` is that of the checkpoint that the run resumes from, 0 for a fresh run."""
        self._first, self._total, self._started = step, total, self._clock()
        if step >= total:
            self.say(f"no step is left: the run is at step {step}, and trainer.total_training_steps={total}")
        else:
            self.say(f"going on after step {step} of {total}" if step else f"training for {total} steps")

    def step(self, step: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Write the line of a step: what fits into a terminal, the first things first; the rest is in the trackers."""
        assert self._total is not None, "start comes before the first step"
        elapsed = self._clock() - self._started
        left = elapsed / (step - self._first) * (self._total - step)
        phases = " ".join(f"{label} {seconds[name]:.1f}" for label, name in _PHASES.items() if name in seconds)
        objective = "" if self.objective is None else self.objective.line(metrics).strip()
        line = f"step {step:>{len(str(self._total))}}/{self._total}  {seconds['step']:.1f} s"
        eta = f"  ETA {duration(left)}"
        for part in (
            objective,
            f"prompt too long {share:.1%}" if (share := metrics.get("games/prompt_too_long")) else "",
            f"stale {dropped:.0f}" if (dropped := metrics.get("async/dropped")) else "",
            *self._games(metrics),
            f"invalid {metrics['turns/invalid']:.1%}",
            self._pool(metrics),
            phases,
            f"tokens {metrics['turns/response_tokens']:.1f}",
            f"entropy {metrics['turns/entropy']:.2f}",
        ):
            if part and len(line) + 2 + len(part) + len(eta) <= WIDTH:
                line += f"  {part}"
        self.say(line + eta)

    @staticmethod
    def _games(metrics: Mapping[str, float]) -> list[str]:
        """Player 0's wins/draws/losses in percent, for each game of the step."""
        wins = sorted(name for name in metrics if name.startswith("games/") and name.endswith("/p0/win"))
        roles = [name.removesuffix("/win") for name in wins]
        shares = ("/".join(f"{100 * metrics[f'{role}/{result}']:.0f}" for result in RESULTS) for role in roles)
        return [f"{role.split('/')[1]} {share}" for role, share in zip(roles, shares, strict=True)]

    @staticmethod
    def _pool(metrics: Mapping[str, float]) -> str:
        """The number of past selves in the pool, and the policy's win rate against those of this step."""
        if "fsp/size" not in metrics:
            return ""
        shares = [metrics[name] for name in metrics if re.fullmatch(r"fsp/member/\d+/win", name)]
        won = f" {sum(shares) / len(shares):.0%}" if shares else ""
        return f"pool {metrics['fsp/size']:.0f}{won}"

    def validation(self, step: int, metrics: Mapping[str, float], more: Iterable[str] = ()) -> None:
        """Write a validation: a line for each opponent, game and role, and ``more`` lines."""
        for role in validated_roles(metrics):
            shares = "  ".join(f"{name} {metrics[f'{role}/{name}']:6.1%}" for name in SHARES)
            games = metrics[f"{role}/games"]
            reward = f"reward {metrics[f'{role}/reward']:+.2f}"
            name = role.removeprefix("val-core/")
            self.say(f"validation at step {step}: {name:<24} {shares}  {reward}  ({games:.0f} games)")
        for line in more:
            self.say(f"validation at step {step}: {line}")

    def finish(self) -> None:
        """Write the last line; none if nothing was trained (``trainer.val_only``)."""
        if self._total is not None:
            self.say(f"trained to step {self._total} in {duration(self._clock() - self._started)}")
