"""Recomputes a run's rewards, baselines and advantages from its games alone, and accounts for every game.

Every game is replayed from its key and its responses; baselines and advantages are computed anew from the outcomes, in
the order of the keys, and compared with what was trained. The arithmetic is written out here a second time on purpose:
an audit that called the trainer's functions would agree with their mistakes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm
from yaml import YAMLError

from . import checkpoints
from .dataset import GameShare, parse_games, training_row
from .match import Rules
from .records import GameRecord, RecordFolder, Turn
from .replay import differences, replay
from .seeds import GameKey

#: Of a difference, relative to numbers above 1: advantages are float32.
TOLERANCE = 1e-6


class NothingToAudit(ValueError):
    """The folder is no run, or has no games; the message says what is missing."""


@dataclass(frozen=True)
class Settings:
    """What of a run's config decides its rewards, baselines and advantages, and which games there are."""

    seed: int
    shares: list[GameShare] | None  # None: a game needs a package that is not installed, and so cannot be looked up
    games_per_step: int
    rules: Rules
    decay: float
    initial: float
    update: str
    gamma: float
    kl_in_reward: bool
    synchronous: bool
    records_every: int
    records_tokens: bool

    @classmethod
    def read(cls, run_dir: Path) -> Settings:
        """The settings of the run's last start, as Hydra kept them.

        Raises:
            NothingToAudit: there are none, or they are not those of a run of ours.
        """
        file = run_dir / ".hydra" / "config.yaml"
        try:
            # Plain keys are read one by one: others need resolvers and an environment that only a run has.
            config = OmegaConf.load(file)
            rae, rules, records = config.algorithm.rae, config.rules, config.records
            return cls(
                seed=int(config.seed),
                shares=_shares(config),
                games_per_step=int(config.data.train_batch_size),
                rules=Rules(tuple(rules.illegal_rewards), rules.cut_off, rules.turn_cap),
                decay=float(rae.decay),
                initial=float(rae.initial),
                update=str(rae["update"]),
                gamma=float(config.algorithm.gamma),
                kl_in_reward=bool(config.algorithm.use_kl_in_reward),
                synchronous=config.trainer.v1.trainer_mode == "sync",
                records_every=int(records.every),
                records_tokens=bool(records.tokens),
            )
        except (OSError, YAMLError, OmegaConfBaseException, ValueError, TypeError, AttributeError, KeyError) as error:
            raise NothingToAudit(f"{file}: {' '.join(str(error).split())}") from error


def _shares(config: Any) -> list[GameShare] | None:
    try:
        return parse_games(OmegaConf.to_container(config.games))  # type: ignore[arg-type]
    except ImportError:
        return None


@dataclass
class Tally:
    """What was found of one game's records: how many, and the largest difference of each quantity."""

    games: int = 0
    discarded: int = 0
    turns: int = 0
    replayed: int = 0
    largest: dict[str, float] = field(default_factory=dict)


class Auditor:
    """Goes through a run's steps in their order and keeps what does not add up."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.discarded: Counter[str] = Counter()
        self.not_replayed: Counter[str] = Counter()
        self.problems: list[str] = []
        self.steps: list[int] = []
        self.checkpoints: list[int] = []
        self.as_recorded: list[int] = []  # steps that start with the recorded baselines
        self._baselines: dict[tuple[str, int], float] = {}
        self._from_start = True  # a baseline that is not known yet is the initial one, not the recorded one
        self._last = 0

    def run(self, run_dir: Path) -> None:
        """Audit all steps and checkpoints of a run.

        Raises:
            NothingToAudit: it has no games.
        """
        folder = RecordFolder(run_dir / "games")
        steps = folder.steps("train")
        if not steps:
            raise NothingToAudit(f"{folder.path}: no train_step_*.jsonl, so there are no games to audit")
        saved = checkpoints.steps(run_dir / "checkpoints")
        every = self.settings.records_every
        if missing := [step for step in range(every, steps[-1], every) if step not in set(steps)] if every else []:
            self.problems.append(f"step {first_few(missing)}: no file of games")
        for step in tqdm(steps, desc="audit", unit="step", delay=2, leave=False, disable=None):
            self.audit_step(step, folder.file("train", step))
            if step in saved:
                self.audit_checkpoint(step, run_dir / "checkpoints" / f"global_step_{step}")
        for step in saved:
            if step > steps[-1] and every and step % every == 0:
                lost = "a checkpoint, but no file of games: they were lost, or the step is not over yet"
                self.problems.append(f"step {step}: {lost}")

    def audit_step(self, step: int, file: Path) -> None:
        """All games of a step, one line at a time; then its accounting, and the baselines' move."""
        if step != self._last + 1:
            self._forget_baselines()
        if not self._from_start and not self._baselines:
            self.as_recorded.append(step)
        self._last = step
        self.steps.append(step)
        games: list[GameRecord] = []
        sound = True
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    record = GameRecord.from_json(line.decode())
                    rewards = self._audit_game(record)
                except Exception as error:  # a line may hold anything
                    self.problems.append(f"{file.name}:{number}: not a game's record: {type(error).__name__}: {error}")
                    sound = False
                    continue
                sound = sound and rewards == record.rewards
                games.append(replace(record, turns=[], rewards=rewards))
        sound = self._account(step, games) and sound
        if sound:
            self._move_baselines(games)
        else:  # what the next step started from cannot be known
            self._forget_baselines()

    # -- one game ------------------------------------------------------------------------------------------------------

    def _audit_game(self, record: GameRecord) -> tuple[float, float]:
        """Returns the game's rewards: the replay's, where there is one."""
        where = f"game {record.key} of {record.game}"
        tally = self.tallies[record.game]
        self._audit_tokens(record, where)
        if record.discarded is not None:
            tally.discarded += 1
            self.discarded[record.discarded] += 1
            if record.baselines != (None, None) or any(turn.advantage is not None for turn in record.turns):
                self.problems.append(f"{where}: discarded ({record.discarded}), and yet it was trained")
            # a void game ended nowhere, so that there is nothing to come to
            return record.rewards if record.discarded == "void" else self._replay(record, tally, where)
        tally.games += 1
        tally.turns += len(record.turns)
        rewards = self._replay(record, tally, where)
        for player in (0, 1):
            if player in record.learners:
                self._audit_learner(record, player, rewards[player], tally, where)
            elif record.baselines[player] is not None or any(t.advantage is not None for t in record.turns_of(player)):
                self.problems.append(f"{where}: player {player} does not learn, and yet it was trained")
        return rewards

    def _replay(self, record: GameRecord, tally: Tally, where: str) -> tuple[float, float]:
        try:
            again = replay(record, self.settings.rules)
        except ImportError as error:
            self.not_replayed[f"{record.game}: {error}"] += 1
            return record.rewards
        tally.replayed += 1
        self.problems += [f"{where}, {difference}" for difference in differences(record, again)]
        for player in (0, 1):
            self._compare("reward", record.rewards[player], again.rewards[player], tally, f"{where}, player {player}")
        return again.rewards

    def _audit_learner(self, record: GameRecord, player: int, reward: float, tally: Tally, where: str) -> None:
        baseline = self._baselines.get((record.game, player))
        if baseline is None:
            recorded = record.baselines[player]
            baseline = self.settings.initial if self._from_start or recorded is None else recorded
            self._baselines[record.game, player] = baseline
        self._compare("baseline", record.baselines[player], baseline, tally, f"{where}, player {player}")
        if self.settings.kl_in_reward:  # its part of an advantage is not in the records
            return
        for remaining, turn in enumerate(reversed(record.turns_of(player))):
            expected = self.settings.gamma**remaining * (reward - baseline)
            self._compare("advantage", turn.advantage, expected, tally, f"{where}, {_name(turn)}")

    def _compare(self, quantity: str, recorded: float | None, computed: float, tally: Tally, where: str) -> None:
        if recorded is None:
            self.problems.append(f"{where}: no {quantity}, which should be {computed:.9g}")
            return
        difference = abs(recorded - computed)
        tally.largest[quantity] = max(difference, tally.largest.get(quantity, 0.0))
        if not difference <= TOLERANCE * max(1.0, abs(computed)):  # so that "not a number" differs
            self.problems.append(f"{where}: {quantity} {recorded:.9g} should be {computed:.9g}")

    def _audit_tokens(self, record: GameRecord, where: str) -> None:
        for turn in record.turns:
            learns, tokens = turn.player in record.learners, turn.tokens
            if tokens is None:
                if learns and self.settings.records_tokens:
                    self.problems.append(f"{where}, {_name(turn)}: no tokens")
                continue
            version = record.key.step - 1
            if learns and self.settings.synchronous and tokens.weights != (version, version):
                self.problems.append(f"{where}, {_name(turn)}: weights {tokens.weights} should be those of {version}")
            log_probs = tokens.log_probs
            if log_probs is not None and len(log_probs) != len(tokens.response_ids):
                counts = f"{len(log_probs)} log-probabilities of {len(tokens.response_ids)} response tokens"
                self.problems.append(f"{where}, {_name(turn)}: {counts}")
            if not all(log_prob <= 0 for log_prob in log_probs or ()):
                self.problems.append(f"{where}, {_name(turn)}: a log-probability is above 0")

    # -- a step's games together ---------------------------------------------------------------------------------------

    def _account(self, step: int, games: Sequence[GameRecord]) -> bool:
        """Whether a step has exactly the games that it should have."""
        before = len(self.problems)
        keys = [record.key for record in games]
        for key, following in pairwise(keys):
            if key > following:
                self.problems.append(f"step {step}: game {following} stands behind {key}, not in the order of the keys")
        tries: dict[int, dict[int, GameRecord]] = defaultdict(dict)
        for record in games:
            key = record.key
            if key.first_try() != GameKey("train", self.settings.seed, step, key.index):
                self.problems.append(f"step {step}: game {key} is none of this run's and step's")
            elif key.retry in tries[key.index]:
                self.problems.append(f"step {step}: game {key} is there more than once")
            else:
                tries[key.index][key.retry] = record
        if missing := sorted(set(range(self.settings.games_per_step)) - set(tries)):
            self.problems.append(f"step {step}: no game of index {first_few(missing)}")
        for index, attempts in sorted(tries.items()):
            self._account_for_tries(step, index, attempts)
        return len(self.problems) == before

    def _account_for_tries(self, step: int, index: int, attempts: dict[int, GameRecord]) -> None:
        """A game counts at once, or is discarded and played again until it counts."""
        if not 0 <= index < self.settings.games_per_step:
            self.problems.append(f"step {step}: index {index} in a step of {self.settings.games_per_step} games")
        *discarded, last = (attempts[retry] for retry in sorted(attempts))
        if sorted(attempts) != list(range(len(attempts))):
            self.problems.append(f"step {step}: game {last.key} replaces a game that is not there")
        if last.discarded is not None:
            self.problems.append(f"step {step}: game {last.key} was discarded ({last.discarded}) and not played again")
        self.problems += [
            f"step {step}: game {record.key} counts, and yet it was played again"
            for record in discarded
            if record.discarded is None
        ]
        if self.settings.shares is not None:
            place = (step - 1) * self.settings.games_per_step + index
            row = training_row(self.settings.shares, self.settings.seed, self.settings.games_per_step, place)
            if last.game != row["game"]:
                self.problems.append(f"step {step}: game {last.key} is {last.game}; the seed drew {row['game']}")

    def _move_baselines(self, games: Sequence[GameRecord]) -> None:
        outcomes: dict[tuple[str, int], list[float]] = defaultdict(list)
        for record in sorted(games, key=lambda record: record.key):
            if record.discarded is None:
                for player in record.learners:
                    outcomes[record.game, player].append(record.rewards[player])
        for role, rewards in outcomes.items():
            for reward in rewards if self.settings.update == "game" else [fmean(rewards)]:
                self._baselines[role] = self.settings.decay * self._baselines[role] + (1 - self.settings.decay) * reward

    def _forget_baselines(self) -> None:
        """From here on baselines are taken from the records where they first appear, and are carried on from there."""
        self._baselines.clear()
        self._from_start = False

    def audit_checkpoint(self, step: int, folder: Path) -> None:
        """That a checkpoint holds the baselines which the games up to it come to."""
        self.checkpoints.append(step)
        try:
            state = checkpoints.read_state(folder)
            saved = {(game, int(role)): float(value) for game, role, value in state["baselines"]["values"]}
            if (state["step"], state["seed"]) != (step, self.settings.seed):
                self.problems.append(f"checkpoint {step}: is of step {state['step']} and seed {state['seed']}")
        except (checkpoints.BrokenCheckpoint, KeyError, TypeError, ValueError) as error:
            self.problems.append(f"checkpoint {step}: {type(error).__name__}: {error}")
            return
        expected = self._baselines
        for game, player in sorted(expected.keys() | saved.keys() if self._from_start else expected.keys()):
            ours, theirs = (values.get((game, player), self.settings.initial) for values in (expected, saved))
            if not abs(ours - theirs) <= TOLERANCE:
                what = f"baseline of {game}, player {player}"
                self.problems.append(f"checkpoint {step}: {what}: {theirs:.9g} should be {ours:.9g}")


def _name(turn: Turn) -> str:
    return f"turn {turn.turn} of player {turn.player}"


def first_few(numbers: Sequence[int]) -> str:
    """Some numbers of a list that may be long, and how many more there are."""
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more
