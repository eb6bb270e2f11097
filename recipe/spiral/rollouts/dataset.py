"""Games as rows of a verl dataset: which game, with which key, who plays.

Rows are made from (run seed, index), so the dataset has no files, no end, and the same rows on every machine; its
position in a checkpoint is the number of starts that were handed out. In sync mode, where batches are counted in turns,
a game is given its key when it is launched. In the asynchronous modes nobody knows at which step a game will be
trained: a key's step is its block of ``data.train_batch_size`` starts.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from .schedule import matches, parse_games, training_row, validated_games, validation_rows

#: verl wants a length; this many games are never reached.
ENDLESS = 1_000_000_000


class GameDataset(Dataset[dict[str, Any]]):
    """What verl builds through ``data.custom_cls``; ``data_files`` says which split it is: "train" or "val"."""

    def __init__(
        self, data_files: str, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1, **kwargs: Any
    ) -> None:
        self.shares = parse_games(config.games)
        self.run_seed = int(config.run_seed)
        numbered = config.batch_unit == "games" or config.trainer_mode != "sync"
        self.starts_per_step = int(config.train_batch_size) if numbered else None
        self.games_per_start = int(config.games_per_start)
        self.rows: list[dict[str, Any]] | None = None
        if data_files == "val":
            validation, shares = config.validation, validated_games(config)
            played = matches(validation.opponents, config.opponents, shares, required=False)
            self.rows = validation_rows(played, self.run_seed, validation.games_per_role)
            # verl's loader takes no empty dataset, also where there is no validation: then this row is not played
            self.rows = self.rows or [training_row(shares, self.run_seed, None, 0)]

    def __len__(self) -> int:
        return ENDLESS if self.rows is None else len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.rows is not None:
            return dict(self.rows[index])
        return training_row(self.shares, self.run_seed, self.starts_per_step, index, self.games_per_start)
