"""The games of a run for its pages: an index to search in, and the games themselves in pieces that are read on demand.

Only steps that are new, or that a resumed run has played anew, are read. ``games/<split>_<step>_<part>`` holds up to
``LARGEST`` characters of games, ``index/<split>_<block>`` a line for each game of ``BLOCK`` steps.
"""

from __future__ import annotations

import stat
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...games.base import TEXTARENA
from ...games.registry import is_class
from ...players.records import RESULTS, GameRecord, Turn
from ...players.seats import Opponent
from ..drawing import Drawn, drawn
from ..evaluation.evaluation_folder import GAMES, lines_of
from ..evaluation.matches import SPLIT
from ..record_folder import RecordFolder, make_named, parse
from .bundle import Bundle, to_json

#: Steps in a block of the index.
BLOCK = 50
#: Characters of JSON in a piece; a game that is larger has one of its own.
LARGEST = 1_000_000
#: Games of an evaluation that are one step.
TOGETHER = 500
#: "human": games that people played. There the policy's place is the person's: its role, and the model as its opponent.
#: "eval": an evaluation's games, which has several policies.
SPLITS = ("train", "val", "human", SPLIT)
#: How a game ended, by its place here in the index.
OUTCOMES = ("player 0 won", "player 1 won", "draw", "both lost", "not counted")
#: The verdict that ended a game, by its place in the index; "": none did.
INVALID = ("", "no_answer", "unreadable", "illegal", "truncated")
#: What is counted of games, in this order. In self-play wins are player 0's.
COUNTED = (*RESULTS, "invalid")
#: What a line of the index holds, in this order. ``policy``, ``game`` and ``opponent`` are places in the block's
#: ``names``. ``roles`` is the policy's, or the person's, 2 for both; ``by`` is the player whose answer was invalid, -1
#: for nobody.
COLUMNS = (
    *("index", "policy", "game", "opponent", "roles", "outcome", "invalid", "by", "turns", "tokens", "part"),
    "place",
)
#: What a game's page shows of a record and of a turn as it is.
_OF_RECORD = (
    *("game", "past", "players", "trainable", "opponent", "termination", "rewards", "baselines", "discarded"),
    "reason",
)
_OF_TURN = ("player", "turn", "observation", "response", "verdict", "action", "truncated", "advantage", "left_out")
#: A step in a block: its file's ``stamp``, its number of ``parts``, of ``broken`` records, and its ``lines``.
Step = dict[str, Any]


class RunGames(RecordFolder):
    """A run's games."""

    def stamps(self, split: str) -> dict[int, str]:
        """The steps that have games, each with a text that is another one whenever they were written anew. Links are
        not followed."""
        found: dict[int, str] = {}
        if not self.path.resolve().is_relative_to(self.path.parent.resolve()):
            return found
        for step in self.steps(split):
            with suppress(OSError):  # a run that is resumed removes some while we look
                about = self.file(split, step).lstat()
                if stat.S_ISREG(about.st_mode):
                    found[step] = f"{about.st_size}-{about.st_mtime_ns}"
        return found


class EvaluationGames:
    """An evaluation's games so far, also while it goes on: ``TOGETHER`` are a step, which are counted from 1 on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / GAMES

    def stamps(self, split: str) -> dict[int, str]:
        """As of ``RunGames``."""
        found: dict[int, str] = {}
        for number, line in enumerate(lines_of(self._file) if split == SPLIT else ()):
            step = number // TOGETHER + 1
            found[step] = f"{zlib.crc32(line, int(found.get(step, '0')))}"
        return found

    def read_step(self, split: str, step: int, broken: Callable[[Exception], None]) -> Iterator[GameRecord]:
        """A step's records, as of ``RecordFolder.read_step``."""
        for line in islice(lines_of(self._file), (step - 1) * TOGETHER, step * TOGETHER):
            try:
                yield parse(line)[0]
            except Exception as error:  # what is no record raises anything
                broken(error)


@dataclass(frozen=True)
class Block:
    """What is known of a block of the index.

    Attributes:
        stamps: of its steps.
        games, broken: the numbers of its games, and of records that cannot be read.
        results: what is counted of its games, by (policy or person, game, opponent, its role, one of ``COUNTED``).
        not_named: its games whose class the user has not named.
    """

    stamps: dict[int, str]
    games: int
    broken: int
    results: Counter[tuple[str, str, str, int, str]]
    not_named: Counter[str]

    @classmethod
    def of(cls, names: list[str], steps: dict[str, Step], named: Container[str]) -> Block:
        lines = [line for step in steps.values() for line in step["lines"]]
        results: Counter[tuple[str, str, str, int, str]] = Counter()
        not_named: Counter[str] = Counter()
        for _, policy, game, opponent, roles, outcome, _, by, *_ in lines:
            group = (names[policy], names[game], names[opponent], roles)
            if outcome < OUTCOMES.index("not counted"):
                won, drawn = outcome == roles % 2, outcome == OUTCOMES.index("draw")
                results[*group, "win" if won else "draw" if drawn else "loss"] += 1
                results[*group, "invalid"] += by >= 0 and roles in (by, 2)
            if is_class(names[game]) and names[game] not in named:
                not_named[names[game]] += 1
        broken = sum(step["broken"] for step in steps.values())
        return cls({int(step): steps[step]["stamp"] for step in steps}, len(lines), broken, results, not_named)


class Games:
    """The games' part of a report. ``blocks`` has what is known of each block of each split; what an earlier report had
    read is read back. ``named`` is as of ``make_named``."""

    def __init__(self, bundle: Bundle, records: RunGames | EvaluationGames, named: Container[str] = ()) -> None:
        self._bundle, self._records, self._named = bundle, records, named
        self.blocks: dict[tuple[str, int], Block] = {}
        for file in bundle.file("index/any").parent.glob("*.js"):
            split, _, number = file.stem.partition("_")
            if block := bundle.read(f"index/{file.stem}"):
                self.blocks[split, int(number)] = Block.of(block["names"], block["steps"], named)

    def _changed(self) -> dict[tuple[str, int], dict[int, str | None]]:
        """The steps that are new, or others, by block, with their stamps; None: a step is gone."""
        changed: dict[tuple[str, int], dict[int, str | None]] = {}
        for split in SPLITS:
            there = self._records.stamps(split)
            known = {
                step: block.stamps[step]
                for (of, _), block in self.blocks.items()
                if of == split
                for step in block.stamps
            }
            for step in sorted(there.keys() | known.keys()):
                if known.get(step) != there.get(step):
                    changed.setdefault((split, step // BLOCK), {})[step] = there.get(step)
        return changed

    def renew(self) -> int:
        """Take in what is new, a block of the index at a time; returns how many steps were read or are gone."""
        changed = self._changed()
        bar = tqdm(
            total=sum(map(len, changed.values())), desc="report", unit="step", delay=2, leave=False, disable=None
        )
        for (split, number), stamps in changed.items():
            block = self._bundle.read(f"index/{split}_{number}") or {"names": [], "steps": {}}
            names = {text: place for place, text in enumerate(block["names"])}
            steps: dict[str, Step] = block["steps"]
            for step, stamp in stamps.items():
                old: Step = steps.pop(str(step), {"parts": 0})
                new: Step = {"parts": 0}
                if stamp is not None:
                    new = steps[str(step)] = self._take(split, step, stamp, names)
                for part in range(new["parts"], old["parts"]):
                    self._bundle.file(_piece(split, step, part)).unlink(missing_ok=True)
                bar.update()
            self._bundle.write(f"index/{split}_{number}", {"names": list(names), "steps": steps})
            self.blocks[split, number] = Block.of(list(names), steps, self._named)
        bar.close()
        return sum(map(len, changed.values()))

    def _take(self, split: str, step: int, stamp: str, names: dict[str, int]) -> Step:
        """Read a step's games, and write their pieces. New names are added to ``names``, with their places."""
        lines: list[list[int]] = []
        broken: list[Exception] = []
        part, games, size = 0, list[str](), 0
        with suppress(OSError):  # the run has removed it since
            for record in self._records.read_step(split, step, broken.append):
                game = to_json(replay(record, self._named))
                if games and size + len(game) > LARGEST:
                    self._bundle.write_packed(_piece(split, step, part), f"[{','.join(games)}]")
                    part, games, size = part + 1, [], 0
                lines.append([*_line(record, names), part, len(games)])
                games.append(game)
                size += len(game)
        self._bundle.write_packed(_piece(split, step, part), f"[{','.join(games)}]")
        return {"stamp": stamp, "parts": part + 1, "broken": len(broken), "lines": lines}


def _piece(split: str, step: int, part: int) -> str:
    return f"games/{split}_{step}_{part}"


def _line(record: GameRecord, names: dict[str, int]) -> list[int]:
    """A game in the index, without its piece and its place there."""
    last = record.turns[-1] if record.turns else None
    invalid = INVALID.index(last.verdict) if last and last.verdict in INVALID else 0
    policy, opponent, roles = _sides(record)
    return [
        record.key.index,
        *(names.setdefault(name, len(names)) for name in (policy, record.game, opponent)),
        roles,
        _outcome(record),
        invalid,
        last.player if last and invalid else -1,
        len(record.turns),
        sum(len(turn.tokens.response_ids) for turn in record.turns if turn.tokens is not None),
    ]


def _sides(record: GameRecord) -> tuple[str, str, int]:
    """The policy, or the person, its opponent, and its role; 2: both."""
    if len(record.trainable) != 1:
        return record.players[0], Opponent.of(record).name, 2
    [role] = record.trainable
    if record.key.split == "human":
        return record.players[1 - role], record.players[role], 1 - role
    return record.players[role], Opponent.of(record).name, role


def _outcome(record: GameRecord) -> int:
    if record.discarded is not None:
        return 4
    results = (record.result(0), record.result(1))
    return 3 if results == ("loss", "loss") else 2 if results[0] == "draw" else int(results[0] == "loss")


def replay(record: GameRecord, named: Container[str] = ()) -> dict[str, Any]:
    """A game as its page takes it: the table after each turn, drawn by the game itself, and what each player answered.
    ``tables`` has the drawing before the first turn, and after each; None where it cannot be played again here."""
    return {
        "key": str(record.key),
        **{name: getattr(record, name) for name in _OF_RECORD},
        "turns": [_turn(turn) for turn in record.turns],
        "tables": _tables(record, named),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    shown = {name: getattr(turn, name) for name in _OF_TURN}
    shown["used"] = turn.usage and turn.usage["prompt_tokens"] + turn.usage["response_tokens"]
    if (tokens := turn.tokens) is not None:
        shown |= {
            "tokens": len(tokens.response_ids),
            "prompt_tokens": len(tokens.prompt_ids),
            "log_prob": None if tokens.log_probs is None else round(sum(tokens.log_probs), 4),
            "weights": tokens.weight_versions,
            "answered_by": tokens.answered_by,
        }
    return shown


def _tables(record: GameRecord, named: Container[str]) -> list[Drawn | None]:
    """Played again from its key; only as far as the players saw what they saw then."""
    tables: list[Drawn | None] = [None] * (len(record.turns) + 1)
    if record.game.startswith(TEXTARENA):  # its environments draw nothing, and some cannot be made anew
        return tables
    try:
        # Validation's games are the same at every step, and only named after it.
        key = record.key.at_step(0) if record.key.split == "val" else record.key
        game = make_named(record.game, key.game_seed(), named)
        for action in record.past:
            game.step(action)
        for place, turn in enumerate(record.turns):
            if game.is_terminal or game.observation(turn.player) != turn.observation:
                return tables
            tables[place] = drawn(game)
            if turn.verdict != "legal" or turn.action is None:
                break
            game.step(turn.action)
            tables[place + 1] = drawn(game)
        if not record.turns:
            tables[0] = drawn(game)
    except Exception:
        pass  # a game of another version, or of a package that is not installed: the texts are there all the same
    return tables
