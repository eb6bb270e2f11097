"""What can be said of each game of a step by itself: whether it is as it was written, its tokens, its replay."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ...players.records import GameRecord, Turn
from ..record_folder import Torn, parse, unpack
from .games_in_flight import wrong_age
from .recompute import Settings
from .replay import differences, replay

#: The largest accepted difference, relative to numbers above 1. Advantages are float32.
TOLERANCE = 1e-6


@dataclass
class Tally:
    """The counts of one game's records, and the largest difference of each quantity."""

    games: int = 0
    discarded: int = 0
    turns: int = 0
    replayed: int = 0
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.games += other.games
        self.discarded += other.discarded
        self.turns += other.turns
        self.replayed += other.replayed
        for quantity, difference in other.largest.items():
            self.largest[quantity] = max(difference, self.largest.get(quantity, 0.0))

    def compare(self, quantity: str, recorded: float | None, computed: float, scale: float = 1.0) -> str:
        """What is wrong with a recorded number; "" if nothing is."""
        if recorded is None:
            return f"no {quantity}, should be {computed:.9g}"
        difference = abs(recorded - computed)
        self.largest[quantity] = max(difference, self.largest.get(quantity, 0.0))
        if difference <= TOLERANCE * max(1.0, scale, abs(computed)):
            return ""
        return f"{quantity} {recorded:.9g} should be {computed:.9g}"  # NaN differs, too


@dataclass
class Findings:
    """What an audit finds.

    Attributes:
        tallies: by game.
        discarded: the number of discarded games by reason.
        not_replayed: the number of games that were not replayed, by reason.
        changed: the number of games whose replay differs in what was seen, said or done.
        too_long: the number of games that a prompt ended, as the records say.
        problems: one line each, with the game's key and the turn.
    """

    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    discarded: Counter[str] = field(default_factory=Counter)
    not_replayed: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    too_long: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        for game, tally in other.tallies.items():
            self.tallies[game].add(tally)
        self.discarded += other.discarded
        self.not_replayed += other.not_replayed
        self.changed += other.changed
        self.too_long += other.too_long
        self.problems += other.problems


class Games(Findings):
    """What is found in the file of a step, of each game by itself.

    Attributes:
        games: the records, without texts and tokens, and with the replay's rewards.
        whole: whether every line is a record, with the rewards of its replay.
    """

    def __init__(self, file: Path, settings: Settings) -> None:
        super().__init__()
        self.games: list[GameRecord] = []
        self.step = int(re.findall(r"_step_(\d+)", file.name)[-1])
        self.whole = True
        number = 0
        try:
            for number, line in enumerate(unpack(file), 1):
                try:
                    record, unchanged = parse(line)
                    if not {0, 1}.issuperset(record.trainable):
                        raise ValueError(f"trainable: {record.trainable}")
                    if not unchanged:
                        self.problems.append(f"{file.name}:{number}: {name(record)} is not as it was written")
                    rewards = self._audit(record, settings)
                except Exception as error:  # a line may hold anything
                    self.problems.append(f"{file.name}:{number}: not a game's record: {type(error).__name__}: {error}")
                    self.whole = False
                    continue
                self.whole = self.whole and rewards == record.rewards
                record.rewards = rewards
                for turn in record.turns:  # of long runs, what is not needed any more
                    turn.observation, turn.response, turn.tokens = "", "", None
                    turn.action = turn.action if settings.states else None
                self.games.append(record)
        except (Torn, OSError) as error:
            self.problems.append(f"{file.name}:{number + 1}: {error}")
            self.whole = False

    def _audit(self, record: GameRecord, settings: Settings) -> tuple[float, float]:
        """Returns the game's rewards: the replay's, if there is one."""
        tally = self.tallies[record.game]
        self._audit_tokens(record, settings)
        if record.discarded is None:
            tally.games += 1
            tally.turns += len(record.turns)
        else:
            tally.discarded += 1
            self.discarded[record.discarded] += 1
            if record.baselines != (None, None) or any(turn.advantage is not None for turn in record.turns):
                self.problems.append(f"{name(record)}: discarded ({record.discarded}), and yet it was trained")
            if record.discarded == "void":  # it did not end, so there is nothing to compare with a replay
                return record.rewards
        if settings.responses is not None:
            self.not_replayed[f"{record.game}: answers to questions are not graded again"] += 1
            return record.rewards
        try:
            opening = None if settings.states else settings.random_openings.get(record.game, 0)
            again = replay(record, settings.rules, settings.named, opening)
        except ImportError as error:
            self.not_replayed[f"{record.game}: {error}"] += 1
            return record.rewards
        tally.replayed += 1
        self.too_long += record.termination == "prompt_too_long"
        different = differences(record, again)
        self.changed += bool(different)
        self.problems += [f"{name(record)}, {difference}" for difference in different]
        for player in (0, 1):
            if wrong := tally.compare("reward", record.rewards[player], again.rewards[player]):
                self.problems.append(f"{name(record)}, player {player}: {wrong}")
        return again.rewards

    def _audit_tokens(self, record: GameRecord, settings: Settings) -> None:
        version = (record.key.step - 1, record.key.step - 1)
        if not settings.synchronous:
            in_groups = settings.games_per_start > 1
            if wrong_one := wrong_age(record, self.step, settings.max_staleness, in_groups):
                self.problems.append(f"{name(record)}: {wrong_one}")
        for turn in record.turns:
            trainable, tokens = turn.player in record.trainable, turn.tokens
            wrong = []
            if tokens is None:
                if trainable:
                    self.problems.append(f"{name(record)}, {name_turn(turn)}: no tokens")
                continue
            expected = None if trainable else record.players[turn.player]
            if tokens.answered_by != expected:
                wrong.append(f"answered by {tokens.answered_by}, should be {expected}")
            if trainable and settings.synchronous and tokens.weight_versions != version:
                wrong.append(f"weights {tokens.weight_versions} should be {version}")
            log_probs = tokens.log_probs or ()
            if tokens.log_probs is not None and len(log_probs) != len(tokens.response_ids):
                wrong.append(f"{len(log_probs)} log-probabilities of {len(tokens.response_ids)} response tokens")
            if log_probs and not max(log_probs) <= 0:
                wrong.append("a log-probability is above 0")
            self.problems += [f"{name(record)}, {name_turn(turn)}: {what}" for what in wrong]


def name(record: GameRecord) -> str:
    return f"game {record.key} of {record.game}"


def name_turn(turn: Turn) -> str:
    return f"turn {turn.turn} of player {turn.player}"
