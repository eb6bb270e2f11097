"""What is kept of a game: enough to replay it, to recompute what was trained on it, and to show it to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from .players.base import Tokens, Usage
from .seeds import GameKey

#: How a turn went. All but "legal" end the game: no \boxed{}; not an action of the game; against the rules; cut off.
Verdict = Literal["legal", "no_answer", "unreadable", "illegal", "cut_off"]
#: How a game ended: by its rules, by a turn that was not legal, or by the turn cap.
Ending = Literal["rules", "illegal", "turn_cap"]


@dataclass
class Turn:
    """One observation and one response.

    Attributes:
        player: who moved.
        turn: how many turns this player had before.
        observation: what the player saw.
        response: the text that it answered.
        verdict: what the match made of the answer.
        action: the canonical action, if the answer named one.
        tokens: for language models.
        cut_off: whether the length limit ended the response, whatever the verdict.
        advantage: what the turn was trained with (the mean over its tokens); set by the trainer, None for turns that
            were not trained.
        left_out: why a learner's turn was not trained, see ``filters``; set by the trainer.
        usage: what the answer used of an endpoint that is paid for.
    """

    player: int
    turn: int
    observation: str
    response: str
    verdict: Verdict
    action: str | None = None
    tokens: Tokens | None = None
    cut_off: bool = False
    advantage: float | None = None
    left_out: str | None = None
    usage: Usage | None = None


@dataclass
class GameRecord:
    """A game that was played to its end.

    Attributes:
        key: its name, from which its seed derives.
        game: the game's id.
        players: the names of players 0 and 1.
        learners: the players whose turns are trained: (0, 1) in self-play.
        turns: in the order in which they were played.
        ending: why it is over.
        rewards: the outcome R for players 0 and 1.
        baselines: b for players 0 and 1, as it was before this batch; set by the trainer.
        discarded: why the game was not trained on: "void", it was played again; "surplus", the games before it gave
            the batch enough turns; None for games that count.
    """

    key: GameKey
    game: str
    players: tuple[str, str]
    learners: tuple[int, ...]
    turns: list[Turn] = field(default_factory=list)
    ending: Ending = "rules"
    rewards: tuple[float, float] = (0.0, 0.0)
    baselines: tuple[float | None, float | None] = (None, None)
    discarded: str | None = None

    def turns_of(self, player: int) -> list[Turn]:
        return [turn for turn in self.turns if turn.player == player]

    def result(self, player: int) -> Literal["win", "draw", "loss"]:
        """The game's outcome for a player, by the raw rewards."""
        mine, other = self.rewards[player], self.rewards[1 - player]
        return "win" if mine > other else "loss" if mine < other else "draw"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GameRecord:
        turns = [_turn(turn) for turn in data["turns"]]
        return cls(
            **{
                **data,
                "key": GameKey(**data["key"]),
                "players": tuple(data["players"]),
                "learners": tuple(data["learners"]),
                "turns": turns,
                "rewards": tuple(data["rewards"]),
                "baselines": tuple(data["baselines"]),
            }
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> GameRecord:
        return cls.from_dict(json.loads(line))


def _turn(data: dict[str, Any]) -> Turn:
    """A turn from its dict; older records know nothing of ``usage``."""
    tokens, usage = data.get("tokens"), data.get("usage")
    return Turn(**{**data, "tokens": _tokens(tokens) if tokens else None, "usage": Usage(**usage) if usage else None})


def _tokens(data: dict[str, Any]) -> Tokens:
    return Tokens(**{**data, "weights": tuple(data["weights"])})


class RecordFolder:
    """A run's records: one JSON-lines file per step and split, written whole or not at all.

    A resumed run cuts the folder back to its checkpoint's step, so that no game is in it twice.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def file(self, split: str, step: int) -> Path:
        return self.path / f"{split}_step_{step:06d}.jsonl"

    def write(self, split: str, step: int, records: Iterable[GameRecord]) -> Path:
        """Write a step's games, in the order of their keys."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.file(split, step)
        unfinished = file.with_suffix(".tmp")
        try:
            with unfinished.open("w", encoding="utf-8") as out:
                for record in sorted(records, key=lambda record: record.key):
                    out.write(record.to_json() + "\n")
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)  # of a write that failed: on a full disk it is in the way
        return file

    def cut_back(self, step: int) -> list[Path]:
        """Remove what was written after ``step``; returns what was removed."""
        later = [file for file in self.path.glob("*_step_*.jsonl") if _step(file) > step]
        for file in later:
            file.unlink()
        return later

    def steps(self, split: str) -> list[int]:
        """The steps that have games, in order."""
        return sorted(_step(file) for file in self.path.glob(f"{split}_step_*.jsonl"))

    def read_step(self, split: str, step: int) -> Iterator[GameRecord]:
        """A step's records."""
        with self.file(split, step).open(encoding="utf-8") as lines:
            for line in lines:
                yield GameRecord.from_json(line)

    def read(self, split: str) -> Iterator[GameRecord]:
        """All records of a split, step after step."""
        for step in self.steps(split):
            yield from self.read_step(split, step)


def _step(file: Path) -> int:
    return int(file.stem.rsplit("_", 1)[1])
