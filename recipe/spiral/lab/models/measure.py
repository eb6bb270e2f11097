"""How good a small model is: how often it moves legally and answers right, and how it fares against random play."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...games import make
from ...match import Rules, play
from ...players.player import Player
from ...players.policy import PolicyPlayer
from ...players.prompts import Template, boxed
from ...players.random_player import RandomPlayer
from ...players.records import GameRecord
from ...players.seeds import GameKey
from .forest import Scored, probabilities
from .read_back import Position, Question
from .sampler import Sampler

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Reader:
    """A model with its tokenizer and template: gives the probabilities of responses to observations, and plays. The
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

    def in_play(self, game_id: str, games: int, seed: int, max_tokens: int = 16) -> dict[str, dict[str, float]]:
        """Let it play at temperature 1: against itself, and in both roles against random play.

        Returns:
            By match-up ("self"; "p0" and "p1", the model's role against random play; "random", random play against
            itself): the fraction of the model's turns that were legal, and the fractions of games that the model
            ("p0", "p1") or player 0 ("self", "random") won, drew and lost.
        """
        sampler = Sampler(self.model, self.tokenizer.eos_token_id, max_tokens)
        policy = PolicyPlayer(
            sampler.generate,
            lambda observation, history: self.prompt(observation),
            lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)),
            {},
            prompt_length=self.tokenizer.model_max_length,
        )
        uniform = RandomPlayer()
        pairs: dict[str, tuple[Player, Player]] = {
            "self": (policy, policy),
            "p0": (policy, uniform),
            "p1": (uniform, policy),
            "random": (uniform, uniform),
        }
        return {
            name: _summary(
                asyncio.run(_play(pair, game_id, games, seed)),
                counted=[player for player in (0, 1) if pair[player] is policy],
                of_player=int(name == "p1"),
            )
            for name, pair in pairs.items()
        }


async def _play(players: tuple[Player, Player], game_id: str, games: int, seed: int) -> list[GameRecord]:
    """So many games side by side, each with its own key."""
    keys = [GameKey("measure", seed, 0, index) for index in range(games)]
    matches = [play(key, game_id, make(game_id, key.game_seed()), players, (), Rules()) for key in keys]
    return await asyncio.gather(*matches)


def _summary(records: Sequence[GameRecord], counted: Sequence[int], of_player: int) -> dict[str, float]:
    """How games ended for ``of_player``, and how many turns of the ``counted`` players were legal."""
    results = Counter(record.result(of_player) for record in records)
    summary = {result: results[result] / len(records) for result in ("win", "draw", "loss")}
    verdicts = Counter(turn.verdict for record in records for turn in record.turns if turn.player in counted)
    if counted:
        summary["turns"] = verdicts.total()
        summary["legal"] = verdicts["legal"] / verdicts.total()
    return summary
