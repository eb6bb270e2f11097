"""Checks that a run was trained on the games that it recorded: python -m recipe.spiral.audit RUN_DIR.

The exit status is 0 if there are no problems, 1 if there are problems, 2 if there is nothing to audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...processes.launch import collect_less
from ...processes.terminal import fail, visible
from ..own_command import NAMED, Arguments, own_game, run_program
from .auditor import Auditor
from .recompute import NothingToAudit, Settings

#: The largest number of problems that are shown.
SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = Arguments(prog="python -m recipe.spiral.audit", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="a run's folder, with games/ and config.yaml in it")
    parser.add_argument("--game", type=own_game, metavar="module:Class", action="append", default=[], help=NAMED)
    options = parser.parse_args(arguments)
    try:
        auditor = Auditor(Settings(options.run_dir, options.game), options.run_dir)
        auditor.run()
    except (NothingToAudit, OSError) as error:
        return fail(error, status=2)
    print(report(auditor))
    return 1 if auditor.problems else 0


def notes(auditor: Auditor) -> Iterator[str]:
    """What could not be checked, and why."""
    settings, accounts = auditor.settings, auditor.accounts
    yield from (f"{count} {what}" for what, count in sorted(auditor.unchecked.items()))
    if auditor.begun:
        yield f"the run began at step {auditor.begun} of another one, whose games are not looked at"
    if auditor.as_recorded:
        several = f"{len(auditor.as_recorded)} steps, the first: {auditor.as_recorded[0]}"
        yield f"the recorded baselines were taken at the start of {several}, as games before are not known"
    if not settings.shares or accounts.launched is None:
        what = "the missing steps" if settings.shares else "the files of questions"
        yield f"whether the seed drew these games was not checked everywhere: that needs {what}"
    if not settings.advantages_follow:
        why = "use_kl_in_reward=true" if settings.kl_in_reward else f"adv_estimator={settings.estimator}"
        yield f"advantages were not recomputed: with algorithm.{why} they need what no record holds"
    if not settings.synchronous:
        flight = f"{accounts.in_flight()} games" if accounts.whole else "not known, as steps are missing:"
        yield f"{flight} were launched before the last one, and are still in flight"
    if not auditor.folder.is_dir():
        yield f"no checkpoints were compared: {auditor.folder} (trainer.default_local_dir) is not there"


def report(auditor: Auditor) -> str:
    """All results, for people; the last line is the verdict."""
    settings, steps, problems = auditor.settings, auditor.steps, auditor.problems
    counts = ("games", "discarded", "turns", "replayed")
    lines = [f"{'game':<24}" + "".join(f"{count:>11}" for count in counts)]
    for game, tally in sorted(auditor.tallies.items()):
        lines.append(f"{game:<24}" + "".join(f"{tally[count]:>11}" for count in counts))
    size = f"at least {settings.batch_size} turns" if settings.in_turns else f"{settings.batch_size} games"
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
    games, turns = (sum(tally[count] for tally in auditor.tallies.values()) for count in ("games", "turns"))
    # What a record says may look like another line of this report.
    lines = [visible(line, most_lines=1) for line in lines]
    return "\n".join([*lines, f"audit: {verdict}, {games} games, {turns} turns"])


if __name__ == "__main__":
    collect_less()
    run_program(main)
