"""Goes through a run's steps in their order: each game by itself, the games of a step together, then what was trained.

Baselines and advantages are recomputed from the outcomes of the replays. If games of a step are missing or wrong, later
baselines cannot be recomputed from the start; the next step then begins with its recorded ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tqdm import tqdm

from ...players.records import SELF_PLAY, GameRecord, Turn
from ...storage import checkpoints
from ...storage.manifest import changed_files
from ...training.credit import REJECTED
from ..record_folder import RecordFolder, Torn, parse, unpack
from .accounting import Accounts, name
from .recompute import Baselines, NothingToAudit, Settings
from .replay import differences, name_turn, replay, wrong_tokens

#: The largest accepted difference, relative to numbers above 1. Advantages are float32.
TOLERANCE = 1e-6
#: What is raised by a checkpoint's state that is not there, or of another form.
DAMAGED = (KeyError, TypeError, ValueError, OverflowError)


class Auditor:
    """What an audit finds.

    Attributes:
        tallies: by game, the numbers of its "games", "turns", "replayed" and "discarded" games.
        discarded: the number of discarded games by reason.
        unchecked: the number of games, or turns, of which something was not checked, by what and why.
        steps: the steps that were audited.
        as_recorded: the steps that begin with their recorded baselines.
        checkpoints: the steps of the checkpoints that were compared.
        begun: the step of another run's checkpoint at which this one began; 0: it did not.
        problems: one line each, with the game's key and the turn.
    """

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        self.settings = settings
        self.records, self.folder = RecordFolder(run_dir / "games"), checkpoints.folder_of(run_dir)
        self.accounts, self.baselines = Accounts(settings), Baselines(settings)
        self.tallies: dict[str, Counter[str]] = defaultdict(Counter)
        self.discarded: Counter[str] = Counter()
        self.unchecked: Counter[str] = Counter()
        self.steps: list[int] = []
        self.as_recorded: list[int] = []
        self.checkpoints: list[int] = []
        self.begun = 0
        self.problems: list[str] = []

    def run(self) -> None:
        """Audit all steps and checkpoints.

        Raises:
            NothingToAudit: the run has no games.
        """
        steps = self.records.steps("train")
        if not steps:
            raise NothingToAudit(f"{self.records.path}: no train_step_*.jsonl.gz, so there are no games to audit")
        # A run that went back to an earlier step leaves later checkpoints behind, which do not belong to it.
        latest, every = checkpoints.latest(self.folder) or 0, self.settings.records_every
        with suppress(*DAMAGED):  # there is none, or that is found below
            state = checkpoints.read_state(self.folder / f"global_step_{latest}")
            self.begun = max(int(state.get("records_after", 0)), 0)
        due = {step for step in range(self.begun + 1, max(steps[-1], latest) + 1) if every and step % every == 0}
        self.problems += [f"step {step}: no file of games" for step in sorted(due.difference(steps))]
        for step in tqdm(steps, desc="audit", unit="step", delay=2, leave=False, disable=None):
            self._audit_step(step)
            checkpoint = self.folder / f"global_step_{step}"
            if step <= latest and checkpoint.exists():
                wrong = [f"checkpoint {step}: {what}" for what in self._wrong_checkpoint(step, checkpoint)]
                if checkpoint.exists():  # else the run goes on, and has removed it meanwhile
                    self.checkpoints.append(step)
                    self.problems += wrong

    def _audit_step(self, step: int) -> None:
        if step != (self.steps[-1] if self.steps else 0) + 1:
            self.baselines.forget()
            self.accounts.gap()
        if not self.baselines.from_start and not self.baselines.values:
            self.as_recorded.append(step)
        self.steps.append(step)
        games, whole = self._read(step)
        wrong = [f"step {step}: {what}" for what in self.accounts.of_step(step, games)]
        counted = [record for record in games if record.discarded is None]
        self.baselines.before(counted)
        self.problems += wrong
        self.problems += [f"{name(record)}, {what}" for record in games for what in self._wrong_training(record)]
        self.baselines.after(counted)
        if wrong or not whole:
            self.baselines.forget()

    # -- each game by itself -------------------------------------------------------------------------------------------

    def _read(self, step: int) -> tuple[list[GameRecord], bool]:
        """A step's records, without texts and tokens, and with the replays' rewards; and whether every line is one,
        with these rewards."""
        file, number, whole = self.records.file("train", step), 0, True
        games: list[GameRecord] = []
        try:
            for number, line in enumerate(unpack(file), 1):
                try:
                    record, unchanged = parse(line)
                    if not {0, 1}.issuperset(record.trainable):
                        raise ValueError(f"trainable: {record.trainable}")
                    if not unchanged:
                        self.problems.append(f"{file.name}:{number}: {name(record)} is not as it was written")
                    rewards = record.rewards
                    for what in (*wrong_tokens(record, step, self.settings), *self._wrong_alone(record)):
                        self.problems.append(f"{name(record)}, {what}")
                except Exception as error:  # a line may hold anything
                    self.problems.append(f"{file.name}:{number}: not a game's record: {type(error).__name__}: {error}")
                    whole = False
                    continue
                whole = whole and rewards == record.rewards
                for turn in record.turns:  # a step may have gigabytes of them
                    turn.observation, turn.response, turn.tokens = "", "", None
                games.append(record)
        except (Torn, OSError) as error:
            self.problems.append(f"{file.name}:{number + 1}: {error}")
            whole = False
        return games, whole

    def _wrong_alone(self, record: GameRecord) -> Iterator[str]:
        """Count a game, and compare it with its replay, whose rewards it has afterwards."""
        tally, settings = self.tallies[record.game], self.settings
        if record.discarded is None:
            tally.update(games=1, turns=len(record.turns))
        else:
            tally["discarded"] += 1
            self.discarded[record.discarded] += 1
            if record.discarded == "void":  # it did not end, so there is nothing to compare with a replay
                return
        if settings.responses:
            self.unchecked[f"games of {record.game} were not replayed: answers to questions are not graded again"] += 1
            return
        try:
            opening = None if settings.branches else settings.random_openings.get(record.game, 0)
            again = replay(record, settings.rules, settings.named, opening)
        except ImportError as error:
            self.unchecked[f"games of {record.game} were not replayed: {error}"] += 1
            return
        tally["replayed"] += 1
        if record.termination == "prompt_too_long":
            self.unchecked["games ended because a prompt was too long: whether it was needs the tokenizer"] += 1
        yield from differences(record, again)
        for player in (0, 1):
            if what := differs("reward", record.rewards[player], again.rewards[player]):
                yield f"player {player}: {what}"
        record.rewards = again.rewards

    # -- what it was trained with --------------------------------------------------------------------------------------

    def _wrong_training(self, record: GameRecord) -> Iterator[str]:
        """What is wrong with a game's baselines and advantages; players who do not learn, and discarded games, have
        none."""
        settings = self.settings
        for player in (0, 1):
            learns = record.discarded is None and player in record.trainable
            baseline = self.baselines.of(record, player) if learns else None
            if what := differs("baseline", record.baselines[player], baseline):
                yield f"player {player}: {what}"
            scale = self.baselines.scale(record, player)
            for remaining, turn in enumerate(reversed(record.turns_of(player))):
                reason = self._left_out(record, turn) if learns else None
                if turn.left_out != reason:
                    what = f"left out for {turn.left_out}, should be for {reason}"
                elif reason or not learns:
                    what = differs("advantage", turn.advantage, None)
                elif settings.advantages_follow and baseline is not None:
                    advantage = scale * settings.gamma**remaining * (record.rewards[player] - baseline)
                    what = differs("advantage", turn.advantage, advantage, scale)
                else:
                    what = "has no advantage" if turn.advantage is None else ""
                if what:
                    yield f"{name_turn(turn)}: {what}"

    def _left_out(self, record: GameRecord, turn: Turn) -> str | None:
        """Why a learning player's turn should not have been trained, as far as that can be known."""
        settings, said = self.settings, turn.left_out
        if reason := settings.filters.reason(record, turn, record.baselines[turn.player]):
            return reason
        if said == REJECTED and settings.rejects:
            self.unchecked["turns were left out by rollout_rs: whether rightly needs more than a record holds"] += 1
            return said
        return said if said == "unpaired" and settings.estimator == "dpo" else None

    def _wrong_checkpoint(self, step: int, folder: Path) -> Iterator[str]:
        """Compare a checkpoint's baselines, and its games in flight, with the games up to it."""
        saved: dict[tuple[str, int, str], float] = {}
        try:
            state = checkpoints.read_state(folder)
            for game, role, opponent, value in state["baselines"]["values"]:
                saved[str(game), int(role), str(opponent)] = float(value)
            if (state["step"], seed := state["settings"]["seed"]) != (step, self.settings.seed):
                yield f"is of step {state['step']} and seed {seed}"
            in_flight = [] if self.settings.synchronous else [(block, place) for block, place, _ in state["in_flight"]]
        except DAMAGED as error:
            yield f"{type(error).__name__}: {error}"
            return
        yield from (f"{file} is not what was written with it" for file in changed_files(folder))
        if not self.settings.synchronous:
            yield from self.accounts.of_checkpoint(in_flight)
        known = self.baselines.values.keys()
        for game, role, opponent in sorted(known | saved.keys() if self.baselines.from_start else known):
            recorded = saved.get((game, role, opponent), self.settings.initial)
            if what := differs("", recorded, self.baselines.get(game, role, opponent)):
                against = "" if opponent == SELF_PLAY else f" against {opponent}"
                yield f"baseline of {game}, player {role}{against}:{what}"


def differs(quantity: str, recorded: float | None, expected: float | None, scale: float = 1.0) -> str:
    """What is wrong with a recorded number; "" if nothing is."""
    if recorded is None or expected is None:
        return "" if recorded == expected else f"{quantity} {recorded} should be {expected}"
    if abs(recorded - expected) <= TOLERANCE * max(1.0, scale, abs(expected)):
        return ""
    return f"{quantity} {recorded:.9g} should be {expected:.9g}"  # NaN differs, too
