"""Questions as rows of a verl dataset: a row is a question, and has a session for each response.

As with games, rows are made from (run seed, index): the dataset has no end, and its position in a checkpoint is the
number of questions that were handed out.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from torch.utils.data import Dataset

from ..players.seats import Opponent, Seat
from ..players.seeds import GameKey, derive_seed
from ..rollouts.dataset import ENDLESS
from .training_questions import GRADER, TrainingQuestion, load_questions


class QuestionDataset(Dataset[dict[str, Any]]):
    """What verl builds through ``data.custom_cls``, once for ``data.train_files`` and once for ``data.val_files``."""

    def __init__(
        self, data_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1, **kwargs: Any
    ) -> None:
        self.run_seed, self.batch = int(config.run_seed), int(config.train_batch_size)
        self.responses = int(config.responses)
        self.rows: list[dict[str, Any]] | None = None
        # verl says which of the two it builds by the files alone
        if data_files == config.train_files:
            self.train = load_questions(data_files, "data.train_files")
            return
        held_out = load_questions(data_files, "data.val_files")[: config.validation.questions]
        keys = [GameKey("val", self.run_seed, 0, i) for i in range(len(held_out))]
        self.rows = [question_row(question, key, key.index, 1) for question, key in zip(held_out, keys, strict=True)]

    def __len__(self) -> int:
        return ENDLESS if self.rows is None else len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.rows is not None:
            return dict(self.rows[index])
        epoch, number = divmod(index, len(self.train))
        question = self.train[order(len(self.train), self.run_seed, epoch)[number]]
        step, first = index // self.batch + 1, index % self.batch * self.responses
        # of its first response; the others' follow it
        key = GameKey("train", self.run_seed, step, first, group=first)
        return question_row(question, key, index, self.responses)


@lru_cache(maxsize=2)
def order(questions: int, run_seed: int, epoch: int) -> list[int]:
    """The places of all questions, in the order in which they are asked for the ``epoch``-th time, from 0."""
    places = list(range(questions))
    random.Random(derive_seed(run_seed, "questions", epoch)).shuffle(places)
    return places


def question_row(question: TrainingQuestion, key: GameKey, index: int, responses: int) -> dict[str, Any]:
    """A question's row, with so many responses."""
    return {
        "raw_prompt": question.to_json(),
        "index": index,
        "agent_name": "spiral_answer",
        "data_source": question.data_set,
        "prompt": {},
        "key": key.to_dict(),
        **Seat(Opponent(GRADER, GRADER), (0,)).columns(),
        "__rollout_n__": responses,
    }
