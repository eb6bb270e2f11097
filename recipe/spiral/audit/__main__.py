"""Says whether a run was trained with what its games come to: ``python -m recipe.spiral.audit RUN_DIR``.

Ends with status 0 if all is in order, 1 if there are problems, 2 if there is nothing to audit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .auditor import Auditor, first_few
from .recompute import NothingToAudit, Settings

#: More problems than these are counted only; ``--json`` keeps them all.
SHOWN = 20
_QUANTITIES = ("reward", "baseline", "advantage")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m recipe.spiral.audit", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="a run's folder, with games/ and .hydra/config.yaml in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found to this file")
    options = parser.parse_args(arguments)
    try:
        auditor = Auditor(Settings.read(options.run_dir))
        auditor.run(options.run_dir)
        if options.json is not None:
            options.json.write_text(json.dumps(findings(auditor), indent=1, ensure_ascii=False), encoding="utf-8")
    except (NothingToAudit, OSError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print(report(auditor))
    return 1 if auditor.problems else 0


def findings(auditor: Auditor) -> dict[str, Any]:
    """All that was found, for programs."""
    return {
        "ok": not auditor.problems,
        "steps": auditor.steps,
        "games": {game: asdict(tally) for game, tally in sorted(auditor.tallies.items())},
        "discarded": dict(auditor.discarded),
        "not_replayed": dict(auditor.not_replayed),
        "rejected": auditor.rejected,
        "checkpoints": auditor.checkpoints,
        "notes": notes(auditor),
        "problems": auditor.problems,
    }


def notes(auditor: Auditor) -> list[str]:
    """What could not be checked, and why."""
    settings = auditor.settings
    found = [f"{count} games were not replayed: {reason}" for reason, count in sorted(auditor.not_replayed.items())]
    if auditor.as_recorded:
        steps = first_few(auditor.as_recorded)
        found.append(f"the recorded baselines were taken at the start of step {steps}: the games before are not known")
    if settings.shares is None:
        found.append("whether the seed drew these games was not checked: a game needs a package that is not installed")
    if not settings.advantages_follow:
        why = "use_kl_in_reward=true" if settings.kl_in_reward else f"adv_estimator={settings.estimator}"
        found.append(f"advantages were not recomputed: with algorithm.{why} they need what no record holds")
    if settings.rejects:
        found.append(
            f"algorithm.rollout_correction.rollout_rs left out {auditor.rejected} turns, and may have left out single "
            "tokens of others: whether rightly was not checked, for it needs log-probabilities that no record holds"
        )
    if settings.rejects_within:
        found.append("which turns policy_loss.rollout_correction left out within the update is not known")
    if not settings.records_tokens:
        found.append("tokens and weights were not checked: records.tokens=false")
    elif not settings.synchronous:
        found.append("the weights that played were not checked: only trainer.v1.trainer_mode=sync says which they are")
    if auditor.folder is not None and not auditor.folder.is_dir():
        found.append(f"no checkpoints were compared: {auditor.folder} (trainer.default_local_dir) is not there")
    return found


def report(auditor: Auditor) -> str:
    """All that was found, for people; the last line is the verdict."""
    columns = "".join(f"{f'max |d {quantity}|':>18}" for quantity in _QUANTITIES)
    lines = [f"{'game':<24}{'games':>9}{'discarded':>11}{'turns':>9}{'replayed':>10}{columns}"]
    for game, tally in sorted(auditor.tallies.items()):
        largest = "".join(
            f"{tally.largest[quantity]:>18.2g}" if quantity in tally.largest else f"{'-':>18}"
            for quantity in _QUANTITIES
        )
        lines.append(f"{game:<24}{tally.games:>9}{tally.discarded:>11}{tally.turns:>9}{tally.replayed:>10}{largest}")
    steps, reasons = auditor.steps, auditor.discarded
    games, turns = (sum(getattr(tally, name) for tally in auditor.tallies.values()) for name in ("games", "turns"))
    lines += [
        f"accounting: {len(steps)} steps ({steps[0]} to {steps[-1]}) of {auditor.settings.games_per_step} games; "
        f"games discarded: {', '.join(f'{count} {reason}' for reason, count in sorted(reasons.items())) or 'none'}; "
        f"checkpoints: {', '.join(map(str, auditor.checkpoints)) or 'none'}",
        *(f"note: {note}" for note in notes(auditor)),
        *(f"problem: {problem}" for problem in auditor.problems[:SHOWN]),
    ]
    if len(auditor.problems) > SHOWN:
        lines.append(f"... and {len(auditor.problems) - SHOWN} more")
    found = f"{len(auditor.problems)} problem{'s' * (len(auditor.problems) != 1)}" if auditor.problems else "ok"
    lines.append(f"audit: {found}, {games} games, {turns} turns")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
