"""Checks that a run was trained on the games that it recorded: python -m recipe.spiral.audit RUN_DIR.

The exit status is 0 if there are no problems, 1 if there are problems, 2 if there is nothing to audit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...processes.launch import collect_less
from ...processes.terminal import fail, visible
from ..own_command import NAMED, Arguments, new_file, own_game, run_program
from .auditor import Auditor, first_few
from .recompute import NothingToAudit, Settings

#: The largest number of problems that are shown; ``--json`` writes all of them.
SHOWN = 20
_QUANTITIES = ("reward", "baseline", "advantage")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = Arguments(prog="python -m recipe.spiral.audit", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="a run's folder, with games/ and config.yaml in it")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all results to this file")
    parser.add_argument("--game", type=own_game, metavar="module:Class", action="append", default=[], help=NAMED)
    options = parser.parse_args(arguments)
    try:
        auditor = Auditor(Settings(options.run_dir, options.game))
        auditor.run(options.run_dir)
        if options.json is not None:
            options.json.write_text(json.dumps(to_dict(auditor), indent=1), encoding="utf-8")
    except (NothingToAudit, OSError) as error:
        return fail(error, status=2)
    print(report(auditor))
    return 1 if auditor.problems else 0


def to_dict(auditor: Auditor) -> dict[str, Any]:
    """All results, for programs."""
    return {
        "ok": not auditor.problems,
        "games": {game: asdict(tally) for game, tally in sorted(auditor.tallies.items())},
        **{name: dict(getattr(auditor, name)) for name in ("discarded", "not_replayed")},
        **{name: getattr(auditor, name) for name in ("steps", "rejected", "checkpoints", "problems")},
        "notes": notes(auditor),
    }


def notes(auditor: Auditor) -> list[str]:
    """What could not be checked, and why."""
    settings = auditor.settings
    lines = [f"{count} games were not replayed: {reason}" for reason, count in sorted(auditor.not_replayed.items())]
    if auditor.changed:
        lines.append(
            f"{auditor.changed} games differ from their replay: audit games of an earlier version with that version, "
            "because the texts of games and the length of messages may have changed since"
        )
    if auditor.too_long:
        lines.append(
            f"{auditor.too_long} games ended because a prompt was too long: whether it was is not checked, because "
            "that needs the model's tokenizer"
        )
    if auditor.fork:
        lines.append(f"the run began at step {auditor.fork} of another one, whose games are not looked at")
    if auditor.as_recorded:
        steps = first_few(auditor.as_recorded)
        lines.append(f"the recorded baselines were taken at the start of step {steps}: the games before are not known")
    if settings.responses is not None:
        lines.append("whether the seed drew these questions was not checked: that needs their files")
    elif auditor.launched is None:
        lines.append(
            "whether the seed drew these games was not checked everywhere: how many were launched before is not known"
        )
    if not settings.advantages_follow:
        why = "use_kl_in_reward=true" if settings.kl_in_reward else f"adv_estimator={settings.estimator}"
        lines.append(f"advantages were not recomputed: with algorithm.{why} they need what no record holds")
    if settings.rejects:
        lines.append(
            f"algorithm.rollout_correction.rollout_rs left out {auditor.rejected} turns, and may have left out single "
            "tokens of others: whether correctly was not checked, because that needs log-probabilities that no record "
            "holds"
        )
    if settings.rejects_within:
        lines.append("which turns policy_loss.rollout_correction left out within the update is not known")
    if not settings.synchronous and auditor.in_flight.known:
        line = f"{auditor.in_flight.left()} games were launched before the last one, and are still in flight"
        if oldest := auditor.in_flight.oldest():
            line += f": the oldest, {oldest[0]}, for at least {auditor.steps[-1] - oldest[1]} steps"
        lines.append(line)
    elif not settings.synchronous:
        lines.append("which games are still in flight was not checked: the games of some steps are not here")
    if auditor.folder is not None and not auditor.folder.is_dir():
        lines.append(f"no checkpoints were compared: {auditor.folder} (trainer.default_local_dir) is not there")
    return lines


def report(auditor: Auditor) -> str:
    """All results, for people; the last line is the verdict."""
    columns = "".join(f"{f'max |d {quantity}|':>18}" for quantity in _QUANTITIES)
    lines = [f"{'game':<24}{'games':>9}{'discarded':>11}{'turns':>9}{'replayed':>10}{columns}"]
    for game, tally in sorted(auditor.tallies.items()):
        texts = [f"{tally.largest[quantity]:.2g}" if quantity in tally.largest else "-" for quantity in _QUANTITIES]
        largest = "".join(f"{text:>18}" for text in texts)
        lines.append(f"{game:<24}{tally.games:>9}{tally.discarded:>11}{tally.turns:>9}{tally.replayed:>10}{largest}")
    steps, problems = auditor.steps, auditor.problems
    per_step = auditor.settings.games_per_step
    size = f"{per_step} games" if per_step is not None else f"at least {auditor.settings.batch_size} turns"
    games, turns = (sum(getattr(tally, name) for tally in auditor.tallies.values()) for name in ("games", "turns"))
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(auditor.discarded.items()))
    lines += [
        f"accounting: {len(steps)} steps ({steps[0]} to {steps[-1]}) of {size}; "
        f"games discarded: {reasons or 'none'}; baselines compared with those of checkpoints: "
        f"{', '.join(map(str, auditor.checkpoints)) or 'none'}",
        *(f"note: {note}" for note in notes(auditor)),
        *(f"problem: {problem}" for problem in problems[:SHOWN]),
    ]
    if len(problems) > SHOWN:
        lines.append(f"... and {len(problems) - SHOWN} more")
    verdict = f"{len(problems)} problem{'s' * (len(problems) != 1)}" if problems else "ok"
    # What a record says may look like another line of this report.
    lines = [visible(line, most_lines=1) for line in lines]
    return "\n".join([*lines, f"audit: {verdict}, {games} games, {turns} turns"])


if __name__ == "__main__":
    collect_less()
    run_program(main)
