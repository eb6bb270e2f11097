"""Compares a run's games with what was trained, and accounts for every game.

Every game is replayed from its key and its responses. Baselines and advantages are recomputed from the outcomes, in
the order of the keys. If games of a step are missing or wrong, later baselines cannot be recomputed from the start; the
next step then begins with its recorded baselines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from tqdm import tqdm

from ...players.records import MAX_VOIDS, SELF_PLAY, GameRecord
from ...players.seats import Seat
from ...players.seeds import GameKey
from ...processes.run_log import LOG
from ...rollouts.schedule import training_row
from ...storage import checkpoints
from ...storage.checkpoints import folder_of
from ...storage.manifest import changed_files
from ...training.credit import REJECTED
from ..record_folder import RecordFolder
from .game_checks import TOLERANCE, Findings, Games, Tally, name, name_turn
from .games_in_flight import InFlight
from .recompute import MOST, Baselines, NothingToAudit, Settings

DPO, UNPAIRED = "dpo", "unpaired"


class Auditor(Findings):
    """Goes through a run's steps in their order and collects problems.

    Attributes:
        steps: the steps that were audited.
        as_recorded: the steps that begin with their recorded baselines.
        checkpoints: the steps of the checkpoints that were compared.
        folder: where the run has its checkpoints.
        fork: the step of another run's checkpoint at which this one began; 0: it did not.
        launched: the number of games before the present step; None: not known.
        rejected: the number of turns that verl's rejection sampling left out, as the records say.
        in_flight: of an asynchronous run.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.steps: list[int] = []
        self.as_recorded: list[int] = []
        self.checkpoints: list[int] = []
        self.folder: Path | None = None
        self.fork = 0
        self.launched: int | None = 0
        self.rejected = 0
        self.in_flight = InFlight(settings)
        self._baselines = Baselines(settings)

    def run(self, run_dir: Path) -> None:
        """Audit all steps and checkpoints of a run.

        Raises:
            NothingToAudit: the run has no games.
        """
        folder = RecordFolder(run_dir / "games")
        steps = folder.steps("train")
        if not steps:
            raise NothingToAudit(f"{folder.path}: no train_step_*.jsonl.gz, so there are no games to audit")
        # A run that went back to an earlier step leaves later checkpoints behind, which do not belong to it.
        self.folder = folder_of(run_dir)
        latest, there = checkpoints.latest(self.folder), checkpoints.steps(self.folder)
        tracker = self.folder / checkpoints.TRACKER
        if latest not in there and (there or tracker.exists()):
            self.problems.append(f"{tracker}: names no checkpoint that is there, so the latest is not known")
            latest = steps[-1]
        self.fork = self.settings.began_at
        if latest is not None:
            self.fork = _begun(self.folder / f"global_step_{latest}")
        every = self.settings.records_every
        due = range(self.fork + every - self.fork % every, steps[-1], every) if every else range(0)
        if missing := sorted(set(due) - set(steps)):
            self.problems.append(f"step {first_few(missing)}: no file of games")
        saved = [step for step in there if step <= (latest or 0)]
        for step in tqdm(steps, desc="audit", unit="step", delay=2, leave=False, disable=None):
            self._audit_step(step, Games(folder.file("train", step), self.settings))
            if step in saved:
                checkpoint = self.folder / f"global_step_{step}"
                wrong = [f"checkpoint {step}: {what}" for what in self._audit_checkpoint(step, checkpoint)]
                if checkpoint.exists():  # else the run goes on, and has removed it meanwhile
                    self.checkpoints.append(step)
                    self.problems += wrong
        if not self.settings.synchronous:
            self.problems += self.in_flight.stuck(steps[-1], _resumed_after(run_dir))
        self.problems += [
            f"step {step}: a checkpoint, but no file of games: they were lost"
            for step in saved
            if step > steps[-1] and every and step % every == 0
        ]

    def _audit_step(self, step: int, audited: Games) -> None:
        """A step's games: what each is by itself, their accounting, then baselines and advantages."""
        if not self.settings.baseline:
            self._baselines.values.clear()
        if step != (self.steps[-1] if self.steps else 0) + 1:
            self._baselines.forget()
            self.launched = None
            self.in_flight.known = False
        if not self._baselines.from_start and not self._baselines.values:
            self.as_recorded.append(step)
        self.steps.append(step)
        self.add(audited)
        games = audited.games
        wrong = list(self._account(step, games))
        self.problems += [f"step {step}: {what}" for what in wrong]
        counted = [record for record in games if record.discarded is None]
        self._baselines.before(counted)
        for record in counted:
            self._audit_training(record)
        self._baselines.after(counted)
        if wrong or not audited.whole:
            self._baselines.forget()

    # -- what it was trained with --------------------------------------------------------------------------------------

    def _audit_training(self, record: GameRecord) -> None:
        tally, wrong = self.tallies[record.game], []
        for player in (0, 1):
            recorded = record.baselines[player]
            baseline = self._baselines.of(record, player) if player in record.trainable else None
            if baseline is not None:
                if problem := tally.compare("baseline", recorded, baseline):
                    wrong.append(f"player {player}: {problem}")
            elif recorded is not None:
                wrong.append(f"player {player}: has a baseline, and should have none")
            if player in record.trainable:
                wrong += self._audit_advantages(record, player, baseline, tally)
            elif any(turn.advantage is not None for turn in record.turns_of(player)):
                wrong.append(f"player {player}: does not learn, and yet it was trained")
        self.problems += [f"{name(record)}, {what}" for what in wrong]

    def _audit_advantages(self, record: GameRecord, player: int, baseline: float | None, tally: Tally) -> Iterator[str]:
        """What is wrong with a trainable player's turns."""
        scale = self._baselines.scale(record, player)
        for remaining, turn in enumerate(reversed(record.turns_of(player))):
            problem = ""
            reason = self.settings.filters.reason(record, turn, record.baselines[player])
            if turn.left_out == REJECTED and reason is None and self.settings.rejects:
                self.rejected += 1
                reason = REJECTED
            if self.settings.estimator == DPO and reason is None and turn.left_out == UNPAIRED:
                reason = UNPAIRED
            if turn.left_out != reason:
                problem = f"left out for {turn.left_out}, should be for {reason}"
            elif reason is not None:
                if turn.advantage is not None:
                    problem = f"left out ({reason}), and yet it was trained"
            elif self.settings.advantages_follow and baseline is not None:
                advantage = scale * self.settings.gamma**remaining * (record.rewards[player] - baseline)
                problem = tally.compare("advantage", turn.advantage, advantage, scale)
            elif turn.advantage is None:
                problem = "has no advantage"
            if problem:
                yield f"{name_turn(turn)}: {problem}"

    # -- a step's games together ---------------------------------------------------------------------------------------

    def _account(self, step: int, games: Sequence[GameRecord]) -> Iterator[str]:
        """Whether a step has exactly the games that it should have."""
        settings = self.settings
        for record, following in pairwise(games):
            if record.key > following.key:
                yield f"{name(following)} stands behind {record.key}: not in their order"
        branches, games = _branches(games) if self.settings.states else ([], list(games))
        yield from self._wrong_branches([record for record in games if record.discarded is None], branches)
        tries: dict[int, dict[int, GameRecord]] = defaultdict(dict)
        for record in games:
            key = record.key
            block = step if settings.synchronous else max(key.step, 1)
            place = key.index if settings.synchronous else self.in_flight.number(key)
            if key.first_try() != GameKey("train", settings.seed, block, key.index) or key.index > MOST:
                yield f"{name(record)} is none of this run's and step's"
            elif key.retry in tries[place]:
                yield f"{name(record)} is there more than once"
            else:
                tries[place][key.retry] = record
        last_tries = {place: attempts[max(attempts)] for place, attempts in sorted(tries.items())}
        expected = settings.games_per_step
        if not settings.synchronous:
            yield from self.in_flight.add(step, last_tries)
            # which games were in flight at a fork is not known, nor of which games they were drawn
            self.launched, expected = None if self.fork else 0, None
        elif expected is None:
            expected = max(tries, default=0) + 1
            yield from self._account_for_turns(games)
        else:
            self.launched = (step - 1) * expected
        if expected is not None and (missing := sorted(set(range(expected)) - set(tries))):
            yield f"no game of index {first_few(missing)}"
        for index, last in last_tries.items():
            for what in (*self._wrong_tries(index, tries[index]), *self._wrong_draw(index, last)):
                yield f"{name(last)} {what}"
        if self.launched is not None and expected is not None:
            self.launched += expected

    def _account_for_turns(self, games: Sequence[GameRecord]) -> Iterator[str]:
        """In the order of their keys, the fewest games with enough turns are trained; the others are surplus."""
        wanted, turns = self.settings.batch_size, 0
        for record in games:
            if record.discarded not in (None, "surplus"):
                continue
            enough = turns >= wanted
            if enough != (record.discarded == "surplus"):
                done = "was trained" if enough else "is surplus"
                yield f"{name(record)} {done}, behind {turns} turns of {wanted}"
            turns += len(record.trainable_turns())
        if turns < wanted:
            yield f"its games have {turns} turns, fewer than {wanted}"

    def _wrong_branches(self, games: Sequence[GameRecord], branches: Sequence[GameRecord]) -> Iterator[str]:
        """Whether each branch goes on from a state of its game, which counts."""
        played = {record.key.first_try(): record for record in games}
        for branch in branches:
            game = played[branch.key.first_try()]
            moves = [*game.past, *(turn.action for turn in game.turns)]
            if branch.discarded is None and branch.past != moves[: len(branch.past)]:
                yield f"{name(branch)} does not go on from a state of its game"

    def _wrong_tries(self, index: int, attempts: Mapping[int, GameRecord]) -> Iterator[str]:
        """What is wrong with the tries of one game, which is discarded and played again until it counts.

        Args:
            index: the game's index in the step; in an asynchronous run, its number.
            attempts: the records by their retry.
        """
        settings = self.settings
        *earlier, last = (attempts[retry] for retry in sorted(attempts))
        drawn = [record for record in earlier if record.discarded == "draw"]
        in_step = index if settings.synchronous else last.key.index
        if not 0 <= in_step < (settings.games_per_step or in_step + 1):
            yield f"has no place in a step of {settings.games_per_step} games"
        if sorted(attempts) != list(range(len(attempts))):
            yield "was played in place of a game that is not there"
        surplus = settings.games_per_step is None and settings.synchronous and last.discarded == "surplus"
        surplus = surplus or (not settings.synchronous and last.discarded == "stale")
        # a game against an endpoint that is out of time or money is given up at once
        voids = sum(record.discarded == "void" for record in attempts.values())
        given_up = last.discarded == "void" and (voids > MAX_VOIDS or last.opponent != SELF_PLAY)
        if last.discarded is not None and not surplus and not given_up:
            yield f"was discarded ({last.discarded}) and not played again"
        if any(record.discarded not in ("void", "draw") for record in earlier):
            yield "was played in place of a game that counts"
        if len(drawn) > settings.draw_retries or any(record.result(0) != "draw" for record in drawn):
            yield f"was played in place of games that were no draws, or of more than {settings.draw_retries}"
        if last.discarded is None and last.result(0) == "draw" and len(drawn) < settings.draw_retries:
            yield f"is a draw after {len(drawn)} draws, and should have been played again"

    def _wrong_draw(self, index: int, record: GameRecord) -> Iterator[str]:
        """Whether the seed drew another game, or another player to train."""
        settings = self.settings
        if settings.responses is not None:
            first, group = index // settings.responses * settings.responses, record.key.group
            if group != first or record.trainable != (0,):
                yield f"is no response to the question at its place: its group is {group}, should be {first}"
        elif settings.shares is not None and self.launched is not None:
            place = self.launched + index
            per_step = settings.games_per_step if settings.synchronous else settings.batch_size
            same = settings.games_per_start
            starts = None if per_step is None else per_step // same
            row = training_row(settings.shares, settings.seed, starts, place // same, same)
            # The seed alone does not decide against whom the policy plays: that depends on the run's pool.
            trainable = Seat.from_row(row).trainable if record.opponent == SELF_PLAY else record.trainable[:1]
            group = row["key"]["group"]
            if settings.states and group is None:  # a game and its branches are tries of one start
                group = record.key.index
            expected = (row["data_source"], group, trainable)
            played = (record.game, record.key.group, record.trainable)
            if played != expected:
                yield f"is not what the seed drew: (game, group, trainable) {played} should be {expected}"

    def _audit_checkpoint(self, step: int, folder: Path) -> Iterator[str]:
        """Compare a checkpoint's baselines with those of the games up to it."""
        saved: dict[tuple[str, int, str], float] = {}
        try:
            state = checkpoints.read_state(folder)
            for game, role, opponent, value in state["baselines"]["values"]:
                saved[str(game), int(role), str(opponent)] = float(value)
            seed = state["settings"]["seed"]
            if (state["step"], seed) != (step, self.settings.seed):
                yield f"is of step {state['step']} and seed {seed}"
            in_flight = [] if self.settings.synchronous else [(block, place) for block, place, _ in state["in_flight"]]
        except (checkpoints.BrokenCheckpoint, KeyError, TypeError, ValueError, OverflowError) as error:
            yield f"{type(error).__name__}: {error}"
            return
        yield from (f"{file} is not what was written with it" for file in changed_files(folder))
        if not self.settings.synchronous:
            yield from self.in_flight.checkpoint(step, in_flight)
        known = self._baselines.values.keys()
        for game, role, opponent in sorted(known | saved.keys() if self._baselines.from_start else known):
            expected = self._baselines.get(game, role, opponent)
            recorded = saved.get((game, role, opponent), self.settings.initial)
            if not abs(recorded - expected) <= TOLERANCE:
                against = "" if opponent == SELF_PLAY else f" against {opponent}"
                yield f"baseline of {game}, player {role}{against}: {recorded:.9g} should be {expected:.9g}"


def _begun(checkpoint: Path) -> int:
    """The step after which a run's records begin, as its latest checkpoint says; 0 where it does not."""
    try:
        return max(int(checkpoints.read_state(checkpoint).get("records_after", 0)), 0)
    except (checkpoints.BrokenCheckpoint, AttributeError, TypeError, ValueError, OverflowError):
        return 0


def first_few(numbers: Sequence[int]) -> str:
    """The first five numbers of a list, and how many more there are."""
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def _branches(games: Sequence[GameRecord]) -> tuple[list[GameRecord], list[GameRecord]]:
    """What follows a game that counts, under the same first name, and all others."""
    counted: set[GameKey] = set()
    branches: list[GameRecord] = []
    others: list[GameRecord] = []
    for record in games:
        (branches if record.key.first_try() in counted else others).append(record)
        if record.discarded is None:
            counted.add(record.key.first_try())
    return branches, others


def _resumed_after(run_dir: Path) -> int | None:
    """The step after which a run was started last, by its log: 0 if it went on from none; None without a log."""
    log = run_dir / LOG
    if not log.is_file():
        return None
    steps = re.findall(r"^going on after step +(\d+)", log.read_text(errors="replace"), re.MULTILINE)
    return int(steps[-1]) if steps else 0
