"""Teaches a new model to answer in the right form: random legal moves, and read-back questions about what it sees.

It is supervised training on response tokens. A round ends at a learning rate of 0; then the model is measured, and
another round follows unless that is good enough. All of it runs on one thread, so that the same seed gives the same
model on any number of cores (of the same kind of processor: others round differently).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...players.seeds import derive_seed
from .forest import Scored, Tree, log_probs
from .read_back import Position
from .reader import Reader

if TYPE_CHECKING:
    from tqdm import tqdm
    from transformers import PreTrainedModel


class Positions(NamedTuple):
    """A game's positions to learn from: those of random play, and made-up ones that are only asked about."""

    played: list[Position]
    made_up: list[Position]


class NotGoodEnough(RuntimeError):
    """The model reads or answers too badly after the last round; the message says what."""


#: The least mean probability of a legal action in every game, and of the right answer to every kind of question, on
#: held-out positions.
LEGAL, READ_BACK = 0.97, 0.99


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns.

    Attributes:
        steps: optimizer steps of the first round.
        more_steps: optimizer steps of every further round.
        rounds: the most rounds.
        observations: observations per step, or some more where there are small games (``shares``).
        questions: questions drawn per observation, besides all legal moves, which weigh as much as these together.
        tree_tokens: observations share a row of the batch until it has this many tokens.
        lr: AdamW's highest learning rate, for embeddings, norms and the output layer.
        matrix_lr: Muon's highest learning rate, for the matrices between them. With Muon a model learns to look up a
            square in half the steps of AdamW.
        again: the factor of both learning rates in every further round.
        weight_decay: of both optimizers.
        warmup_steps: steps until a round's highest learning rate.
        decay: the fraction of a round in which its learning rate falls to 0.
    """

    steps: int = 320
    more_steps: int = 160
    rounds: int = 6
    observations: int = 32
    questions: int = 6
    tree_tokens: int = 110
    lr: float = 2e-3
    matrix_lr: float = 4e-3
    again: float = 0.25
    weight_decay: float = 0.1
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


def warm_up(
    reader: Reader,
    train: Mapping[str, Positions],
    held_out: Sequence[Position],
    schedule: Schedule,
    seed: int,
    bar: tqdm[Any],
) -> dict[str, Any]:
    """Train ``reader.model`` in place until the criteria are met.

    Args:
        train: positions to learn from, by game.
        held_out: positions of all games to measure on.
        seed: decides which positions and questions are drawn.
        bar: shows the steps; every further round is added to its total.

    Returns:
        The figures of the last measurement; "missed" lists the criteria that are not met.
    """
    rng = random.Random(derive_seed(seed, "warm start order"))
    drawn = shares({game: len(positions.played) for game, positions in train.items()}, schedule.observations)
    optimizers = _optimizers(reader.model, schedule)
    figures: dict[str, Any] = {}
    done = 0
    for number in range(1, schedule.rounds + 1):
        steps = schedule.steps if number == 1 else schedule.more_steps
        bar.total = done + steps
        bar.refresh()
        for step in range(1, steps + 1):
            bar.set_description(f"warm start, round {number}", refresh=False)
            trees = _batch(reader, train, drawn, schedule, rng)
            loss = _step(reader.model, trees, optimizers, schedule.factor(number, step, steps))
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()
        done += steps
        bar.set_description("measuring", refresh=True)
        figures = measure(reader, held_out)
        figures.update(rounds=number, steps=done, loss=loss)
        if not figures["missed"]:
            break
        if not bar.disable:
            bar.write(f"not good enough yet: {'; '.join(figures['missed'])}", file=sys.stderr)
    return figures


def measure(reader: Reader, held_out: Sequence[Position]) -> dict[str, Any]:
    """What the model makes of held-out positions; "missed" says what is not good enough."""
    right, legal = reader.read_back(held_out), reader.legal(held_out)
    missed = [f"{kind}: {share:.1%} right, not {READ_BACK:.0%}" for kind, share in right.items() if share < READ_BACK]
    missed += [f"{game}: {share:.1%} legal, not {LEGAL:.0%}" for game, share in legal.items() if share < LEGAL]
    return {"read_back": right, "legal": legal, "missed": missed}


def shares(positions: Mapping[str, int], observations: int) -> dict[str, int]:
    """The number of observations of each game in a step. It grows with the logarithm of the game's positions.

    A small game has at least a fifth of ``observations``, if need be on top of those of the others.
    """
    weights = {game: math.log1p(number) for game, number in positions.items()}
    total, least = sum(weights.values()), max(1, observations // 5)
    return {game: max(least, round(observations * weight / total)) for game, weight in weights.items()}


def _batch(
    reader: Reader, train: Mapping[str, Positions], drawn: Mapping[str, int], schedule: Schedule, rng: random.Random
) -> list[Tree]:
    trees = []
    for game, share in drawn.items():
        row: list[Scored] = []
        for index in range(share):
            made_up = train[game].made_up if index % 2 else []
            row += _examples(reader, rng.choice(made_up or train[game].played), schedule.questions, rng)
            tree = Tree.of(row)
            if len(tree.tokens) >= schedule.tree_tokens or index == share - 1:
                trees.append(tree)
                row = []
    return trees


def _examples(reader: Reader, position: Position, number: int, rng: random.Random) -> list[Scored]:
    """All legal moves, and questions. Their kind is drawn first, so that each kind is asked about equally often."""
    kinds = sorted({question.kind for question in position.questions})
    asked = set()
    for _ in range(number):
        kind = rng.choice(kinds)
        asked.add(rng.choice([question for question in position.questions if question.kind == kind]))
    ordered = sorted(asked, key=lambda question: question.text)
    return reader.moves(position, weight=number) + [reader.asked(position, question) for question in ordered]


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

    weights = torch.tensor([weight for tree in trees for weight in tree.weights])
    loss = -(log_probs(model, trees) * weights).sum() / weights.sum()
    model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("highest_lr", group["lr"])
        optimizer.step()
    return loss.item()
