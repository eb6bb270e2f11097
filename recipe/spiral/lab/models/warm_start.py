"""Teaches a new model to answer in the right form: random legal moves, and read-back questions about what it sees.

It is supervised training on response tokens. A round ends at a learning rate of 0; then the model is measured, and
another round follows unless the criteria are met. All of it runs on one thread, so that the same seed gives the same
model on any number of cores (of the same kind of processor: others round differently).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...players.seeds import derive_seed
from .forest import Scored, Tree, log_probs
from .measure import Reader
from .read_back import Position

if TYPE_CHECKING:
    from tqdm import tqdm
    from transformers import PreTrainedModel


class Positions(NamedTuple):
    """A game's positions to learn from: those of random play, and made-up ones that are only asked about."""

    played: list[Position]
    made_up: list[Position]


class NotGoodEnough(RuntimeError):
    """The model does not meet the criteria after the last round; the message says which."""


@dataclass(frozen=True)
class Criteria:
    """When a model is ready for self-play.

    Attributes:
        legal: the least fraction of legal turns, in every game and match-up that is played.
        read_back: the least fraction of right answers, for every kind of question, on held-out positions.
        better: how much more often than random play it may win against random play. It has learned from random play
            only; the margin is for the randomness of ``Schedule.play_games`` games.
    """

    legal: float = 0.97
    read_back: float = 0.99
    better: float = 0.12

    def missed(self, figures: dict[str, Any]) -> list[str]:
        """The criteria that are not met, in words."""
        missed = []
        for kind, right in figures["read_back"].items():
            if right < self.read_back:
                missed.append(f"{kind} read back {right:.1%} right, at least {self.read_back:.1%} wanted")
        for game, right in figures["legal"].items():
            if right < self.legal:
                missed.append(f"{game} {right:.1%} legal on held-out positions, at least {self.legal:.1%} wanted")
        for game, matchups in figures.get("in_play", {}).items():
            for name, summary in matchups.items():
                if (right := summary.get("legal", 1.0)) < self.legal:
                    missed.append(f"{game} {name} {right:.1%} legal in play, at least {self.legal:.1%} wanted")
            expected = {"p0": matchups["random"]["win"], "p1": matchups["random"]["loss"]}
            for name, win in expected.items():
                if matchups[name]["win"] > win + self.better:
                    missed.append(f"{game} {name} wins {matchups[name]['win']:.1%} against random play, not {win:.1%}")
        return missed


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
        play_games: games per match-up when the model is measured in play.
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
    play_games: int = 400

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
    criteria: Criteria,
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
        figures = measure(reader, sorted(train), held_out, criteria, schedule.play_games, seed)
        figures.update(rounds=number, steps=done, loss=loss)
        if not figures["missed"]:
            break
        if not bar.disable:
            bar.write(f"not good enough yet: {'; '.join(figures['missed'])}", file=sys.stderr)
    return figures


def measure(
    reader: Reader, games: Sequence[str], held_out: Sequence[Position], criteria: Criteria, play_games: int, seed: int
) -> dict[str, Any]:
    """Measure read-back and legality on held-out positions, and if these meet the criteria, games in play as well."""
    figures: dict[str, Any] = {
        "criteria": asdict(criteria),
        "held_out_positions": {game: sum(position.game == game for position in held_out) for game in games},
        "read_back": reader.read_back(held_out),
        "legal": reader.legal(held_out),
    }
    if not criteria.missed(figures):
        figures["play_games"] = play_games
        figures["in_play"] = {game: reader.in_play(game, play_games, seed) for game in games}
    figures["missed"] = criteria.missed(figures)
    return figures


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
