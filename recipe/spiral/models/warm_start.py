"""Teaches a new model to answer in the right form: random legal moves, and read-back questions about what it sees.

Supervised, on response tokens only. It comes in rounds, each of which ends at a learning rate of 0; after a round the
model is measured, and there is another one unless it is good enough. On one thread on purpose: the same seed then gives
the same model on any number of cores, and nothing waits for a core that another process has.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..play.seeds import derive_seed
from .examples import Seen
from .forest import Scored, Tree, log_probs
from .measure import Reader

if TYPE_CHECKING:
    from tqdm import tqdm
    from transformers import PreTrainedModel


class Positions(NamedTuple):
    """What there is to learn from in a game: positions of random play, and made-up ones that are only asked about."""

    played: list[Seen]
    made_up: list[Seen]


class NotGoodEnough(RuntimeError):
    """The warm start has ended, and the model does not meet the criteria; the message says which."""


@dataclass(frozen=True)
class Criteria:
    """When a model is ready for self-play.

    Attributes:
        legal: the least fraction of legal turns, in every game and match-up that is played.
        read_back: the least fraction of right answers, for every kind of question, on held-out positions.
        better: by how much it may win more often against random play than random play does. It has only seen
            random play; the margin is for chance.
    """

    legal: float = 0.97
    read_back: float = 0.99
    better: float = 0.12

    def missed(self, figures: dict[str, Any]) -> list[str]:
        """What is not met, in words."""
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
    """How it learns.

    Attributes:
        steps: optimizer steps of the first round.
        more_steps: of every further round.
        rounds: at most so many rounds.
        observations: observations per step, or some more where there are small games (``shares``).
        questions: questions drawn per observation, besides all legal moves, which weigh as much as these together.
        tree_tokens: observations share a row of the batch until it has this many tokens.
        lr: AdamW's highest learning rate, for embeddings, norms and the output layer.
        matrix_lr: Muon's, for the matrices between them: learns to look up a square in half the steps of AdamW.
        again: what both are multiplied by in every further round: it is to end what the first one began.
        play_games: games per match-up when it is measured in play.
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
        """For so many games: from the third on, each makes the first round longer, and so do questions about lines.

        Of questions about lines 98 to 99% are answered right after 1,200 steps with ten questions to a position
        (docs/tiny_model.md).
        """
        steps = cls.steps + 640 * max(0, games - 2)
        return cls(steps=steps + 880, questions=10) if lines else cls(steps=steps)

    def factor(self, number: int, step: int, steps: int) -> float:
        """What the learning rates are multiplied by in a round's step, both counted from 1: a trapezoid."""
        highest = 1.0 if number == 1 else self.again
        return highest * min(1.0, step / self.warmup_steps, (steps - step + 1) / max(1.0, self.decay * steps))


def warm_up(
    reader: Reader,
    train: Mapping[str, Positions],
    held_out: Sequence[Seen],
    schedule: Schedule,
    criteria: Criteria,
    seed: int,
    bar: tqdm[Any],
) -> dict[str, Any]:
    """Train ``reader.model`` in place.

    Args:
        reader: the model to train, with its tokenizer and template.
        train: positions to learn from, by game.
        held_out: positions of all games to measure on.
        schedule: how it learns.
        criteria: when it is good enough.
        seed: decides what is drawn.
        bar: shows the steps; its total is the first round, and grows with every further one.

    Returns:
        The figures of the last measurement; ``missed`` lists the criteria that are not met.
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
    reader: Reader, games: Sequence[str], held_out: Sequence[Seen], criteria: Criteria, play_games: int, seed: int
) -> dict[str, Any]:
    """Read-back and legality on held-out positions; only if these are good enough, in play as well."""
    figures: dict[str, Any] = {
        "criteria": asdict(criteria),
        "held_out_positions": {game: sum(seen.game == game for seen in held_out) for game in games},
        "read_back": reader.read_back(held_out),
        "legal": reader.legal(held_out),
    }
    if not criteria.missed(figures):
        figures["play_games"] = play_games
        figures["in_play"] = {game: reader.in_play(game, play_games, seed) for game in games}
    figures["missed"] = criteria.missed(figures)
    return figures


def shares(positions: Mapping[str, int], observations: int) -> dict[str, int]:
    """Observations of each game in a step: a game with many positions needs more, but not in proportion.

    With several large games beside it, a small one still has as many as a fifth of ``observations``, on top of theirs.
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


def _examples(reader: Reader, seen: Seen, number: int, rng: random.Random) -> list[Scored]:
    """All legal moves, and questions drawn by kind first, so that nine squares do not drown the one card."""
    kinds = sorted({question.kind for question in seen.questions})
    asked = set()
    for _ in range(number):
        kind = rng.choice(kinds)
        asked.add(rng.choice([question for question in seen.questions if question.kind == kind]))
    ordered = sorted(asked, key=lambda question: question.text)
    return reader.moves(seen, weight=number) + [reader.asked(seen, question) for question in ordered]


def _optimizers(model: PreTrainedModel, schedule: Schedule) -> list[Any]:
    import torch

    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    others = [p for name, p in model.named_parameters() if not (p.ndim == 2 and ".layers." in name)]
    return [
        torch.optim.AdamW(others, lr=schedule.lr, betas=(0.9, 0.98), weight_decay=schedule.weight_decay),
        torch.optim.Muon(
            matrices, lr=schedule.matrix_lr, weight_decay=schedule.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
    ]


def _step(model: PreTrainedModel, trees: Sequence[Tree], optimizers: Sequence[Any], factor: float) -> float:
    """One optimizer step on the weighted mean of the targets' negative log-likelihoods; returns it."""
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
