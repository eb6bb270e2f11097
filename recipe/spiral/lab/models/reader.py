"""How well a small model reads and answers: the probabilities of legal moves and of right answers to questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...players.prompts import Template, boxed
from .forest import Scored, probabilities
from .read_back import Position, Question

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Reader:
    """A model with its tokenizer and template: gives the probabilities of responses to observations. The
    tokenizer's end-of-sequence token ends a response."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: Template) -> None:
        self.model, self.tokenizer, self.template = model, tokenizer, template
        self._prompts: dict[str, list[int]] = {}
        self._responses: dict[str, list[int]] = {}

    def prompt(self, observation: str) -> list[int]:
        if observation not in self._prompts:
            self._prompts[observation] = self.template.encode(self.tokenizer, observation)
        return self._prompts[observation]

    def response(self, answer: str) -> list[int]:
        """The ids of the response that gives this answer, its end token included."""
        if answer not in self._responses:
            ids = self.tokenizer.encode(boxed(answer), add_special_tokens=False)
            self._responses[answer] = [*ids, self.tokenizer.eos_token_id]
        return self._responses[answer]

    def moves(self, position: Position, weight: float = 1.0) -> list[Scored]:
        """Every legal action as a response; they share the weight."""
        share = weight / max(1, len(position.legal))
        prompt = self.prompt(position.observation)
        return [Scored(prompt, self.response(action), share) for action in position.legal]

    def asked(self, position: Position, question: Question) -> Scored:
        """A question about a position, and its right answer."""
        return Scored(self.prompt(question.about(position.observation)), self.response(question.answer))

    def read_back(self, positions: Sequence[Position]) -> dict[str, float]:
        """The mean probability of the right answer at temperature 1, by "game/kind of question"."""
        groups = [[self.asked(position, question) for question in position.questions] for position in positions]
        by_kind = defaultdict(list)
        for position, values in zip(positions, probabilities(self.model, groups), strict=True):
            for question, value in zip(position.questions, values, strict=True):
                by_kind[f"{position.game}/{question.kind}"].append(value)
        return {kind: sum(values) / len(values) for kind, values in by_kind.items()}

    def legal(self, positions: Sequence[Position]) -> dict[str, float]:
        """The mean probability of a legal action at temperature 1, by game."""
        groups = [self.moves(position) for position in positions]
        by_game = defaultdict(list)
        for position, values in zip(positions, probabilities(self.model, groups), strict=True):
            by_game[position.game].append(sum(values))
        return {game: sum(values) / len(values) for game, values in by_game.items()}
