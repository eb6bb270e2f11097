"""The games of a run for its pages: an index to search in, and the games themselves in pieces that are read on demand.

Only steps that are new, or that a resumed run has played anew, are read. ``games/<split>_<step>_<part>`` holds up to
``LARGEST`` characters of games, ``index/<split>_<block>`` a line for each game of ``BLOCK`` steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from ...games.base import TEXTARENA
from ...games.registry import is_class, make_named
from ...players.records import RESULTS, GameRecord, Turn
from ...players.seats import Opponent
from ..drawing.drawn import Drawn, drawn
from ..record_folder import RecordFolder
from .bundle import Bundle, to_json
from .evaluation_games import EvaluationGames
from .inside import is_inside

#: Steps in a block of the index.
BLOCK = 50
#: Characters of JSON in a piece; a game that is larger has one of its own.
LARGEST = 1_000_000
#: "human": games that people played. There the policy's place is the person's: its role, and the model as its opponent.
#: "eval": an evaluation's games, which has several policies.
SPLITS = ("train", "val", "human", "eval")
#: How a game ended, by its place here in the index.
OUTCOMES = ("player 0 won", "player 1 won", "draw", "both lost", "not counted")
#: The verdict that ended a game, by its place in the index; "": none did.
INVALID = ("", "no_answer", "unreadable", "illegal", "truncated")
#: What is counted of games, in this order.
COUNTED = (*RESULTS, "invalid")
#: What a line of the index holds, in this order. ``policy``, ``game`` and ``opponent`` are places in the block's
#: ``names``. ``roles`` is the policy's, or the person's, 2 for both; ``by`` is the player whose answer was invalid, -1
#: for nobody.
COLUMNS = (
    *("index", "retry", "policy", "game", "opponent", "roles", "outcome"),
    *("invalid", "by", "turns", "tokens", "part", "place"),
)
#: What a game's page shows of a record and of a turn as it is.
_OF_RECORD = (
    *("game", "past", "players", "trainable", "opponent", "termination", "rewards", "baselines", "discarded"),
    "reason",
)
_OF_TURN = ("player", "turn", "observation", "response", "verdict", "action", "truncated", "advantage", "left_out")
#: What is known of a step: its file's stamp, its pieces, its games, its broken lines, its results, and its games whose
#: class the user has not named. A result is [policy, opponent's kind, opponent, game, the policy's role (2: both),
#: wins, draws, losses, games that it ended by an invalid answer]; in self-play wins are player 0's. Branches are not in
#: them.
Step = dict[str, Any]
#: A step's lines in the index.
Lines = list[list[int]]


class RunGames(RecordFolder):
    def stamps(self, split: str) -> dict[int, str]:
        """The steps that have games, each with a text that is another one whenever they were written anew."""
        found = {}
        for step in self.steps(split):
            with suppress(OSError):  # a run that is resumed removes some while we look
                if is_inside(self.path.parent, self.file(split, step)):
                    stat = self.file(split, step).stat()
                    found[step] = f"{stat.st_size}-{stat.st_mtime_ns}"
        return found


@dataclass(frozen=True)
class Block:
    """What a block of the index has: its first and last step, its games, its broken lines, the results of its games,
    and the games whose class the user has not named."""

    first: int
    last: int
    games: int
    broken: int
    results: Counter[tuple[Any, ...]]
    not_named: Counter[str]

    @classmethod
    def of(cls, steps: Mapping[int, Step]) -> Block:
        results: Counter[tuple[Any, ...]] = Counter()
        not_named: Counter[str] = Counter()
        for facts in steps.values():
            not_named.update(facts["not_named"])
            for *group, wins, draws, losses, invalid in facts["results"]:
                results.update(
                    dict(zip(((*group, what) for what in COUNTED), (wins, draws, losses, invalid), strict=True))
                )
        games, broken = (sum(facts[what] for facts in steps.values()) for what in ("games", "broken"))
        return cls(min(steps), max(steps), games, broken, results, not_named)


class Games:
    """The games' part of a report. ``blocks`` has what is known of each block of each split. ``named`` is as of
    ``make_named``."""

    def __init__(self, bundle: Bundle, records: RunGames | EvaluationGames, named: Container[str] = ()) -> None:
        self._bundle, self._records, self._named = bundle, records, named
        #: By split and step; what an earlier report had read is read back.
        self.steps: dict[str, dict[int, Step]] = {split: {} for split in SPLITS}
        self.blocks: dict[tuple[str, int], Block] = {}
        for split in SPLITS:
            for file in bundle.file(f"facts/{split}").parent.glob(f"{split}_*.js"):
                known = bundle.read(f"facts/{file.stem}", {})
                self.steps[split] |= {int(step): facts for step, facts in known.items()}
            for number in {step // BLOCK for step in self.steps[split]}:
                self._count(split, number)

    def _count(self, split: str, number: int) -> dict[int, Step]:
        """Count a block anew; returns its steps."""
        steps = {step: self.steps[split][step] for step in _steps_of(number) if step in self.steps[split]}
        if steps:
            self.blocks[split, number] = Block.of(steps)
        else:
            self.blocks.pop((split, number), None)
        return steps

    def renew(self) -> Iterator[int]:
        """Take in what is new, a block of the index at a time; yields the number of steps that were read."""
        changed: dict[tuple[str, int], dict[int, str | None]] = {}
        for split in SPLITS:
            there, old = self._records.stamps(split), self.steps[split]
            for step in sorted(there.keys() | old.keys()):
                if old.get(step, {}).get("stamp") != there.get(step):
                    changed.setdefault((split, step // BLOCK), {})[step] = there.get(step)
        of = sum(map(len, changed.values()))
        bar = tqdm(total=of, desc="report", unit="step", delay=2, leave=False, disable=None)
        for (split, number), stamps in changed.items():
            name = f"index/{split}_{number}"
            written = self._bundle.read(name) or {"names": [], "steps": {}}
            names = {text: place for place, text in enumerate(written["names"])}
            block: dict[int, Lines] = {int(step): lines for step, lines in written["steps"].items()}
            for step, stamp in stamps.items():
                before = self.steps[split].pop(step, None)
                block.pop(step, None)
                if stamp is not None:
                    block[step] = self._take(split, step, stamp, names)
                parts = self.steps[split].get(step, {"parts": 0})["parts"]
                for part in range(parts, before["parts"] if before else 0):
                    self._bundle.remove(piece_name(split, step, part))
                bar.update()
            self._bundle.write(name, {"names": list(names), "steps": dict(sorted(block.items()))})
            self._bundle.write(f"facts/{split}_{number}", self._count(split, number))
            yield len(stamps)
        bar.close()

    def _take(self, split: str, step: int, stamp: str, names: dict[str, int]) -> Lines:
        """Read a step's games, and write their pieces. New names are added to ``names``, with their places."""
        facts: Step = {"stamp": stamp, "parts": 0, "games": 0, "broken": 0, "results": [], "not_named": {}}
        lines: Lines = []
        results: Counter[tuple[Any, ...]] = Counter()
        piece: list[str] = []
        size = 0

        def broken(error: Exception) -> None:
            facts["broken"] += 1

        def write() -> None:
            self._bundle.write_packed(piece_name(split, step, facts["parts"]), f"[{','.join(piece)}]")
            facts["parts"] += 1
            piece.clear()

        with suppress(OSError):  # the run has removed it since
            for record in self._records.read_step(split, step, broken):
                game = to_json(replay(record, self._named))
                if is_class(record.game) and record.game not in self._named:
                    facts["not_named"][record.game] = facts["not_named"].get(record.game, 0) + 1
                if piece and size + len(game) > LARGEST:
                    write()
                    size = 0
                lines.append([*_line(record, names), facts["parts"], len(piece)])
                results.update(_results(record))
                piece.append(game)
                size += len(game)
        if piece:
            write()
        facts["games"] = len(lines)
        for group in dict.fromkeys(key[:5] for key in results):
            facts["results"].append([*group, *(results[*group, result] for result in COUNTED)])
        self.steps[split][step] = facts
        return lines


def _steps_of(number: int) -> range:
    return range(number * BLOCK, (number + 1) * BLOCK)


def piece_name(split: str, step: int, part: int) -> str:
    return f"games/{split}_{step}_{part}"


def _line(record: GameRecord, names: dict[str, int]) -> list[int]:
    """A game in the index, without its piece and its place there."""
    last = record.turns[-1] if record.turns else None
    invalid = INVALID.index(last.verdict) if last and last.verdict in INVALID else 0
    policy, opponent, roles = _sides(record)
    return [
        record.key.index,
        record.key.retry,
        names.setdefault(policy, len(names)),
        names.setdefault(record.game, len(names)),
        names.setdefault(opponent.name, len(names)),
        roles,
        _outcome(record),
        invalid,
        last.player if last and invalid else -1,
        len(record.turns),
        sum(len(turn.tokens.response_ids) for turn in record.turns if turn.tokens is not None),
    ]


def _sides(record: GameRecord) -> tuple[str, Opponent, int]:
    """The policy, or the person, its opponent, and its role; 2: both."""
    if len(record.trainable) != 1:
        return record.players[0], Opponent.of(record), 2
    [role] = record.trainable
    if record.key.split == "human":
        return record.players[1 - role], Opponent("human", record.players[role]), 1 - role
    return record.players[role], Opponent.of(record), role


def _outcome(record: GameRecord) -> int:
    if record.discarded is not None:
        return 4
    results = (record.result(0), record.result(1))
    return 3 if results == ("loss", "loss") else 2 if results[0] == "draw" else int(results[0] == "loss")


def _results(record: GameRecord) -> Iterator[tuple[Any, ...]]:
    """What is counted of a game: its result, and whether the policy ended it by an invalid answer."""
    if record.discarded is not None:
        return
    policy, opponent, role = _sides(record)
    group = (policy, opponent.kind, opponent.name, record.game, role)
    yield (*group, record.result(role % 2))
    last = record.turns[-1] if record.turns else None
    if last is not None and last.verdict != "legal" and last.player in record.trainable:
        yield (*group, "invalid")


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
