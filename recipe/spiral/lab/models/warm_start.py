"""Teaches a new model to answer in the right form: random legal moves, and read-back questions about what it sees.

It is supervised training on response tokens. A round ends at a learning rate of 0; then the model is measured, and
another round follows unless that is good enough. All of it runs on one thread, so that the same seed gives the same
model on any number of cores (of the same kind of processor: others round differently).
"""

from __future__ import annotations

import math
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from ...players.prompts import Template, boxed
from ...players.seeds import derive_seed
from .answer_scores import Question, Scored, Tree, distributions, in_order, score_answers
from .read_back import Position

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: The least mean probability of a legal action in every game, and of the right answer to every kind of question, on
#: held-out positions.
LEGAL, READ_BACK = 0.97, 0.99


class Positions(NamedTuple):
    """A game's positions to learn from: those of random play, and made-up ones that are only asked about."""

    played: list[Position]
    made_up: list[Position]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns."""

    #: Optimizer steps of the first round and of every further one, and the most rounds.
    steps: int = 320
    more_steps: int = 160
    rounds: int = 6
    #: Observations per step, or some more where there are small games (``_shares``).
    observations: int = 32
    #: Questions drawn per observation, besides all legal moves, which weigh as much as these together.
    questions: int = 6
    #: Observations share a row of the batch until it has this many tokens.
    tree_tokens: int = 110
    #: AdamW's highest learning rate, for embeddings, norms and the output layer; and Muon's, for the matrices between
    #: them. With Muon a model learns to look up a square in half the steps of AdamW.
    lr: float = 2e-3
    matrix_lr: float = 4e-3
    #: The factor of both learning rates in every further round.
    again: float = 0.25
    #: Of both optimizers.
    weight_decay: float = 0.1
    #: Steps until a round's highest learning rate, and the fraction of a round in which it falls to 0.
    warmup_steps: int = 30
    decay: float = 0.3

    @classmethod
    def of(cls, games: int, lines: bool = False) -> Schedule:
        """For so many games. Each game from the third on makes the first round longer, and so do questions about lines.

        After 1,200 steps with ten questions per position, 98 to 99% of the answers about lines are right
        (docs/results.md).
        """
        steps = cls.steps + 640 * max(0, games - 2)
        return cls(steps=steps + 880, questions=10) if lines else cls(steps=steps)

    def factor(self, number: int, step: int, steps: int) -> float:
        """The learning rates' factor in a step of round ``number``, both counted from 1: up, level, and down to 0."""
        highest = 1.0 if number == 1 else self.again
        return highest * min(1.0, step / self.warmup_steps, (steps - step + 1) / max(1.0, self.decay * steps))


class Reader:
    """A model with its tokenizer and template; the tokenizer's end-of-sequence token ends a response."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: Template) -> None:
        self.model, self.eos = model, int(tokenizer.eos_token_id)
        #: The ids of the prompt with an observation, and of an answer, without its end.
        self.prompt = cache(lambda observation: template.encode(tokenizer, observation))
        self.said = cache(lambda answer: tokenizer.encode(boxed(answer), add_special_tokens=False))

    def examples(self, position: Position, number: int, rng: random.Random) -> list[Scored]:
        """All legal moves, and so many questions. Their kind is drawn first, so that each kind is asked about equally
        often."""
        kinds = sorted({question.kind for question in position.questions})
        asked = set()
        for _ in range(number):
            kind = rng.choice(kinds)
            asked.add(rng.choice([question for question in position.questions if question.kind == kind]))
        moves = [self._scored(position.observation, move, number / len(position.legal)) for move in position.legal]
        ordered = sorted(asked, key=lambda question: question.text)
        return moves + [self._scored(each.about(position.observation), each.answer) for each in ordered]

    def _scored(self, observation: str, answer: str, weight: float = 1.0) -> Scored:
        return Scored(self.prompt(observation), [*self.said(answer), self.eos], weight)

    def probabilities(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """The probability of each answer to each observation at temperature 1."""
        numbers = [Question(self.prompt(seen), [self.said(answer) for answer in answers]) for seen, answers in asked]
        longest = self.model.config.max_position_embeddings
        scores = score_answers(self.model, numbers, [self.eos], 1.0, longest, self.model.device)
        return [[math.exp(score) for score in row] for row in in_order(numbers, scores)]

    def measure(self, positions: Sequence[Position]) -> dict[str, dict[str, float]]:
        """Mean probabilities at temperature 1: of the right answer, by "game/kind of question" ("read_back"), and of a
        legal action, by game ("legal")."""
        found: dict[str, defaultdict[str, list[float]]] = {"read_back": defaultdict(list), "legal": defaultdict(list)}
        moves = self.probabilities([(position.observation, position.legal) for position in positions])
        for position, values in zip(positions, moves, strict=True):
            found["legal"][position.game].append(sum(values))
        asked = [(position, question) for position in positions for question in position.questions]
        answers = self.probabilities([(asked.about(seen.observation), [asked.answer]) for seen, asked in asked])
        for (position, question), (value,) in zip(asked, answers, strict=True):
            found["read_back"][f"{position.game}/{question.kind}"].append(value)
        return {what: {name: fmean(values) for name, values in means.items()} for what, means in found.items()}


def warm_up(
    reader: Reader,
    train: Mapping[str, Positions],
    held_out: Sequence[Position],
    schedule: Schedule,
    seed: int,
) -> dict[str, Any]:
    """Train ``reader.model`` in place until the criteria are met.

    Args:
        train: positions to learn from, by game.
        held_out: positions of all games to measure on.
        seed: decides which positions and questions are drawn.

    Returns:
        The figures of the last measurement; "missed" lists the criteria that are not met.
    """
    rng = random.Random(derive_seed(seed, "warm start order"))
    drawn = _shares({game: len(positions.played) for game, positions in train.items()}, schedule.observations)
    optimizers = _optimizers(reader.model, schedule)
    interval = 0.2 if sys.stderr.isatty() else 10  # seconds between two states of the bar
    figures: dict[str, Any] = {}
    done = 0
    for number in range(1, schedule.rounds + 1):
        steps = schedule.steps if number == 1 else schedule.more_steps
        for step in (bar := tqdm(range(1, steps + 1), f"warm start, round {number}", mininterval=interval)):
            trees = _batch(reader, train, drawn, schedule, rng)
            loss = _step(reader.model, trees, optimizers, schedule.factor(number, step, steps))
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        done += steps
        figures = {**reader.measure(held_out), "rounds": number, "steps": done, "loss": loss}
        right, legal = figures["read_back"], figures["legal"]
        missed = [f"{kind}: {share:.1%} right" for kind, share in right.items() if share < READ_BACK]
        figures["missed"] = missed + [f"{game}: {share:.1%} legal" for game, share in legal.items() if share < LEGAL]
        if not figures["missed"]:
            break
        print(f"not good enough yet: {'; '.join(figures['missed'])}", file=sys.stderr)
    return figures


def _shares(positions: Mapping[str, int], observations: int) -> dict[str, int]:
    """The number of observations of each game in a step. It grows with the logarithm of the game's positions.

    A small game has at least a fifth of ``observations``, if need be on top of those of the others.
    """
    weights = {game: math.log1p(number) for game, number in positions.items()}
    total, least = sum(weights.values()), max(1, observations // 5)
    return {game: max(least, round(observations * weight / total)) for game, weight in weights.items()}


def _batch(
    reader: Reader, train: Mapping[str, Positions], drawn: Mapping[str, int], schedule: Schedule, rng: random.Random
) -> list[Tree]:
    trees: list[Tree] = []
    for game, share in drawn.items():
        for index in range(share):
            if index == 0 or len(trees[-1].tokens) >= schedule.tree_tokens:
                trees.append(Tree())
            made_up = train[game].made_up if index % 2 else []
            for scored in reader.examples(rng.choice(made_up or train[game].played), schedule.questions, rng):
                trees[-1].add(scored)
    return trees


def _optimizers(model: PreTrainedModel, schedule: Schedule) -> list[Any]:
    import torch

    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and ".layers." in name else others).append(parameter)
    return [
        torch.optim.AdamW(others, lr=schedule.lr, betas=(0.9, 0.98), weight_decay=schedule.weight_decay),
        torch.optim.Muon(
            matrices, lr=schedule.matrix_lr, weight_decay=schedule.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
    ]


def _step(model: PreTrainedModel, trees: Sequence[Tree], optimizers: Sequence[Any], factor: float) -> float:
    """One optimizer step on the weighted mean of the targets' negative log-likelihoods; returns that loss."""
    import torch

    log_p, which = distributions(model, trees)
    said = log_p[which, torch.tensor([token for tree in trees for _, token in tree.targets])]
    weights = torch.tensor([weight for tree in trees for weight in tree.weights])
    loss = -(said * weights).sum() / weights.sum()
    model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("highest_lr", group["lr"])
        optimizer.step()
    return loss.item()
