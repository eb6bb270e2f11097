"""Games as rows of a verl dataset: which game, with which key, who plays; and in validation benchmarks' questions.

A row holds no prompt: a game makes its own. Rows are made from (run seed, index), so the dataset has no files, no end,
and the same rows on every machine; its position in a checkpoint is the number of games that were handed out. Where
batches are counted in turns, a row does not know its game's step, and the game is given its key when it is launched.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from .evaluation.benchmarks.asked import Asked, parse_entries, to_ask
from .evaluation.benchmarks.rows import with_questions
from .schedule import parse_games, training_row, validation_rows
from .validation import matches

#: verl wants a length; this many games are never reached.
ENDLESS = 1_000_000_000


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
        #: The answers that validation asks for, by their keys' index.
        self.asked: list[Asked] = []
        if data_files == "val":
            validation = config.validation
            entries = validation.games if validation.games is not None else config.games
            played = matches(validation.opponents, config.opponents, parse_games(entries, "validation.games"))
            games = validation_rows(played, self.run_seed, validation.games_per_role)
            self.asked = to_ask(parse_entries(validation.benchmarks), self.run_seed)
            self.rows = with_questions(games, self.asked, self.run_seed)

    def __len__(self) -> int:
        return ENDLESS if self.rows is None else len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.rows is not None:
            return dict(self.rows[index])
        return training_row(self.shares, self.run_seed, self.games_per_step, index, self.games_per_start)
