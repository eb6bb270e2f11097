"""Games as rows of a verl dataset: which game, with which key, who plays.

A row holds no prompt: a game makes its own. Rows are made from (run seed, index), so the dataset has no files, no end,
and the same rows on every machine; its position in a checkpoint is the number of games that were handed out. Where
batches are counted in turns, a row does not know its game's step, and the game is given its key when it is launched.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from .games import resolve
from .prompts import check_style, get_template
from .seats import Seat
from .seeds import GameKey, derive_seed

#: verl wants a length; this many games are never reached.
ENDLESS = 1_000_000_000
AGENT = "spiral_game"


@dataclass(frozen=True)
class GameShare:
    """A game and its share of all games, relative to the others'.

    Attributes:
        id: the game's id.
        weight: its share.
        template: its prompts' template; None: that of all games.
        style: its prompts' style, likewise.
    """

    id: str
    weight: float = 1.0
    template: str | None = None
    style: str | None = None

    @classmethod
    def parse(cls, entry: str | Mapping[str, Any], setting: str = "games") -> GameShare:
        """From a config entry: an id, or ``{id, weight, template, style}``.

        Raises:
            UnknownGame: no such game.
            ValueError: another key, a weight that is not positive, or no such template or style.
        """
        if isinstance(entry, str):
            return cls(resolve(entry))
        if not isinstance(entry, Mapping):
            raise ValueError(f"{setting}: {entry!r} is no game: give an id, or {{id: ..., weight: ...}}")
        unknown = set(entry) - {"id", "weight", "template", "style"}
        if unknown or "id" not in entry:
            raise ValueError(f"{setting}: {dict(entry)} must have the key id, and may have weight, template and style")
        if (template := entry.get("template")) is not None:
            get_template(template)
        game_id, weight = resolve(str(entry["id"])), entry.get("weight", 1.0)
        if not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(
                f"{setting}: {game_id} has weight={weight}: must be a number above 0; or leave the game out"
            )
        if (style := entry.get("style")) is not None:
            check_style(style, f"{setting}: {game_id}: style")
        return cls(game_id, float(weight), template, style)


def parse_games(entries: Sequence[str | Mapping[str, Any]], setting: str = "games") -> list[GameShare]:
    """A config's list of games.

    Raises:
        ValueError: it is no list, is empty, names a game twice, or holds a bad entry.
    """
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise ValueError(f"{setting}={entries!r}: must be a list: {setting}=[{entries}]")
    shares = [GameShare.parse(entry, setting) for entry in entries]
    if not shares:
        raise ValueError(f"{setting}=[]: name at least one game")
    ids = [share.id for share in shares]
    if len(set(ids)) != len(ids):
        raise ValueError(f"{setting}: a game is named twice: {', '.join(ids)}; use weight instead")
    return shares


def training_row(
    shares: Sequence[GameShare], run_seed: int, games_per_step: int | None, index: int, games_per_start: int = 1
) -> dict[str, Any]:
    """The ``index``-th game of a run: self-play of a game drawn by weight.

    Args:
        shares: the games.
        run_seed: the run's.
        games_per_step: how many games a step has; None: not known, and the key has the step 0.
        index: counted through the whole run.
        games_per_start: so many games, one after the other, start from the same state; divides ``games_per_step``.
    """
    first = index - index % games_per_start
    draw = random.Random(derive_seed(run_seed, "which game", first))
    share = draw.choices(shares, [share.weight for share in shares])[0]
    if games_per_step is None:
        key = GameKey("train", run_seed, 0, index)
    else:
        group = first % games_per_step if games_per_start > 1 else None
        key = GameKey("train", run_seed, index // games_per_step + 1, index % games_per_step, group=group)
    return _row(share, key, index, Seat())


def validation_rows(
    shares: Sequence[GameShare], run_seed: int, games_per_role: int, opponent: str
) -> list[dict[str, Any]]:
    """Games against an opponent, each game in both roles; the same chance at every validation, so that they compare."""
    rows: list[dict[str, Any]] = []
    for share in shares:
        for role in (0, 1):
            for _ in range(games_per_role):
                key = GameKey("val", run_seed, 0, len(rows))
                rows.append(_row(share, key, len(rows), Seat(opponent, opponent, (role,))))
    return rows


def _row(share: GameShare, key: GameKey, index: int, seat: Seat) -> dict[str, Any]:
    return {
        "raw_prompt": "",  # verl wants the column; a game makes its own prompts
        "index": index,
        "agent_name": AGENT,
        "data_source": share.id,
        "game": share.id,
        "template": share.template or "",
        "style": share.style or "",
        "key": key.to_dict(),
        **seat.columns(),
    }


class GameDataset(Dataset[dict[str, Any]]):
    """What verl builds through ``data.custom_cls``; ``data_files`` says which split it is: "train" or "val"."""

    def __init__(
        self,
        data_files: str,
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
        **kwargs: Any,
    ) -> None:
        self.shares = parse_games(config.games)
        self.run_seed = int(config.run_seed)
        self.games_per_step = int(config.train_batch_size) if config.batch_unit == "games" else None
        self.games_per_start = int(config.games_per_start)
        self.rows: list[dict[str, Any]] | None = None
        if data_files == "val":
            validation = config.validation
            entries = validation.games if validation.games is not None else config.games
            shares = parse_games(entries, "validation.games")
            self.rows = validation_rows(shares, self.run_seed, validation.games_per_role, validation.opponent)

    def __len__(self) -> int:
        return ENDLESS if self.rows is None else len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.rows is not None:
            return dict(self.rows[index])
        return training_row(self.shares, self.run_seed, self.games_per_step, index, self.games_per_start)
