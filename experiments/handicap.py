"""When does role conditioning matter? ``python -m experiments.handicap [overrides]``.

Kuhn poker with a handicap (``handicapped_kuhn.py``) is learned with several baselines, everything else being equal: the
game, its equilibria and the expected gradient. The loss and its settings are the quick loop's. Lines of play are drawn
from the probabilities of all answers, which one pass gives, so a step takes a fraction of the quick loop's; all illegal
answers at an information set count as one. Each finished run is kept, so a stopped experiment goes on.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from experiments.command import run_experiment
from experiments.composed import compose_run, warm_start
from experiments.enumeration import COLUMNS, Lines, score_products, variances
from experiments.handicapped_kuhn import GAMES
from experiments.quick_update import rate
from experiments.result import Result, command_line, current_commit, weights_digest
from experiments.targets import running_mean
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, Indices, game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV
from recipe.spiral.match import Rules
from recipe.spiral.storage.disk import write_whole

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

NAME, MODULE = "handicap", "experiments.handicap"
TITLE = "When role conditioning matters: Kuhn poker with a handicap"
GROUPS = "GRPO per role"
ARMS = ("none", "RAE", "one mean", "by observation", GROUPS)
TREE = game_tree("KuhnPoker")


class Baseline:
    """An arm's baseline b.

    Args:
        arm: one of ``ARMS``.
        lines: of the game.
        decay: of moving averages, which start at 0.
        group: how many games start alike, for ``GROUPS``. Its b is the mean of the other games' rewards, because with
            the game's own the gradient would be shorter.
    """

    def __init__(self, arm: str, lines: Lines, decay: float, group: int) -> None:
        self._arm, self._lines, self._decay, self._group = arm, lines, decay, group
        #: b at each information set. [rows]
        self.values: Floats = np.zeros(len(lines.owners))

    def advantages(self, drawn: Indices) -> Floats:
        """R - b of games, the lines that were ``drawn``, at each information set. [games, rows]"""
        rewards, owners = self._lines.rewards[drawn], self._lines.owners
        if self._arm != GROUPS:
            return rewards[:, owners] - self.values
        alike = rewards.reshape(-1, self._group, 2)
        others = (alike.sum(axis=1, keepdims=True) - alike) / (self._group - 1)
        return (rewards - others.reshape(-1, 2))[:, owners]

    def update(self, drawn: Indices) -> None:
        """Move the averages by these games, in their order."""
        if self._arm in ("none", GROUPS):
            return
        rewards, visits = self._lines.rewards[drawn], self._lines.visits[drawn]
        for row, owner in enumerate(self._lines.owners):
            seen = rewards[:, owner]
            if self._arm == "one mean":
                seen = rewards.mean(axis=1)
            elif self._arm == "by observation":
                seen = seen[visits[:, row] > 0]
            weights = (1 - self._decay) * self._decay ** np.arange(len(seen) - 1, -1, -1)
            self.values[row] = self._decay ** len(seen) * self.values[row] + weights @ seen


class Policy:
    """A model's answers at the information sets of Kuhn poker.

    Args:
        folder: of the model.
        config: of ``main_spiral``, for the prompts.
        compiled: whether the pass is compiled, for this and all models that are loaded later.
    """

    def __init__(self, folder: Path, config: DictConfig, compiled: bool = False) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from recipe.spiral.lab.models.forest import Scored, Tree
        from recipe.spiral.lab.models.measure import Reader
        from recipe.spiral.players.prompts import get_template

        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder)
        reader = Reader(self.model, AutoTokenizer.from_pretrained(folder), get_template(config.prompt.template))
        self._groups = [
            [Scored(reader.prompt(seen.observation), reader.response(action)) for action in seen.actions]
            for seen in TREE.information_sets
        ]
        tree = Tree.of([answer for answers in self._groups for answer in answers])
        blind = torch.from_numpy(~tree.sees)[None, None]
        self._given = {
            "input_ids": torch.tensor([tree.tokens]),
            "position_ids": torch.tensor([tree.positions]),
            "attention_mask": {"full_attention": torch.zeros(blind.shape).masked_fill_(blind, -1e30)},
        }
        self._nodes, self._tokens = torch.tensor(tree.targets).T
        self._owners = torch.tensor(tree.owners)
        self._legal: Callable[[], torch.Tensor] = torch.compile(self._pass) if compiled else self._pass

    def load(self, folder: Path) -> None:
        """Take the weights of another model, which has the same tokenizer."""
        from safetensors.torch import load_file

        self.model.load_state_dict(load_file(folder / "model.safetensors"))

    def _pass(self) -> torch.Tensor:
        """The log-probabilities of the legal answers. [rows, 2]"""
        hidden = self.model.model(**self._given, use_cache=False).last_hidden_state[0, self._nodes]
        tokens = self.model.lm_head(hidden).log_softmax(-1).gather(-1, self._tokens[:, None])[:, 0]
        return tokens.new_zeros(2 * len(self._groups)).index_add(0, self._owners, tokens).view(-1, 2)

    def log_probs(self) -> torch.Tensor:
        """Of all answers. [answers]"""
        import torch

        legal = self._legal()
        illegal = (1 - legal.exp().sum(1, keepdim=True)).clamp(min=1e-9).log()
        return torch.cat([legal, illegal], dim=1).flatten()

    def products(self) -> Floats:
        """The inner products of the scores of all answers. [answers, answers]"""
        return score_products(self.model, self._groups)


def objective(
    log_p: torch.Tensor, reference: torch.Tensor, advantages: Floats, counts: Floats, actor: Any
) -> torch.Tensor:
    """The quick loop's loss (``Learner.objective``) for answers.

    Args:
        log_p: log-probabilities of all answers. [answers]
        reference: the same of the start. [answers]
        advantages: the sum of the advantages of all games in which an answer was given. [answers]
        counts: their number. [answers]
        actor: ``actor_rollout_ref.actor`` of the config.
    """
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty

    total = -(torch.from_numpy(advantages).float() * log_p).sum()
    if actor.use_kl_loss:
        apart = kl_penalty(log_p[None], reference[None], str(actor.kl_loss_type))[0]
        total = total + float(actor.kl_loss_coef) * (torch.from_numpy(counts).float() * apart).sum()
    return total / float(actor.loss_scale_factor) / counts.sum()


def draw(lines: Lines, table: Floats, rng: np.random.Generator, games: int, alike: int) -> Indices:
    """Lines of play: deals at random, each for ``alike`` games, and answers by the policy's table. [games]

    The same random numbers give the same deals to every arm with the same ``alike``.
    """
    deals = lines.deals.max() + 1
    dealt = np.repeat(rng.integers(deals, size=games)[: games // alike], alike)
    sums = lines.chances(table).reshape(deals, -1).cumsum(axis=1)[dealt]
    places = (rng.random(games)[:, None] * sums[:, -1:] >= sums).sum(axis=1)
    drawn: Indices = dealt * (len(lines.deals) // deals) + places
    return drawn


def train(
    policy: Policy, handicap: float, arm: str, seed: int, settings: Mapping[str, Any], config: DictConfig
) -> dict[str, Any]:
    """One run.

    Args:
        policy: at its start; it is trained in place.
        handicap, arm, seed: which run.
        settings: the experiment's.
        config: of ``main_spiral``, composed with the experiment's overrides.

    Returns:
        ``points``: step, games, NashConv, and the share of games that an illegal answer ended; ``variances``: by step
        and handicap the ratio of every scheme's variance to that of none, the expected rewards, and the best baselines.
    """
    import torch

    actor, batch = config.actor_rollout_ref.actor, int(config.data.train_batch_size)
    rules, decay, steps = Rules.from_config(config.rules), float(config.algorithm.rae.decay), settings["steps"]
    by_handicap = {c: Lines.of(game, TREE, rules) for c, game in GAMES.items()}
    lines = by_handicap[handicap]
    baseline = Baseline(arm, lines, decay, settings["group"])
    weights = list(policy.model.parameters())
    optim = actor.optim
    optimizer = torch.optim.AdamW(
        weights, lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate(optim, steps))
    rng = np.random.default_rng(seed)
    points: list[dict[str, float]] = []
    found: dict[str, dict[str, Any]] = {}
    reference = policy.log_probs().detach()
    ended_illegally = lines.answers[:, COLUMNS - 1 :: COLUMNS].sum(axis=1)
    for step in range(steps + 1):
        log_p = policy.log_probs()
        table = log_p.detach().exp().double().numpy().reshape(-1, COLUMNS)[:, :2]
        if step % settings["every"] == 0:
            illegal = float(lines.chances(table) @ ended_illegally)
            points.append({"step": step, "games": step * batch, NASH_CONV: nash_conv(TREE, table), "illegal": illegal})
        if step % settings["variances_every"] == 0:
            products = policy.products()
            for c, of_c in by_handicap.items():
                exact = variances(of_c, table, products, decay, settings["group"])
                found.setdefault(str(step), {})[str(c)] = {
                    "ratios": exact.ratios(),
                    "means": exact.means,
                    "best": exact.best,
                }
        if step == steps:
            break
        drawn = draw(lines, table, rng, batch, settings["group"] if arm == GROUPS else 1)
        given = lines.answers[drawn]
        advantages = (given * np.repeat(baseline.advantages(drawn), COLUMNS, axis=1)).sum(axis=0)
        optimizer.zero_grad()
        objective(log_p, reference, advantages, given.sum(axis=0), actor).backward()
        torch.nn.utils.clip_grad_norm_(weights, float(optim.clip_grad))
        optimizer.step()
        schedule.step()
        baseline.update(drawn)
    return {"points": points, "variances": found}


def games_until(points: Sequence[Mapping[str, float]], reach: float, mean_over: int) -> float | None:
    """The games until the running mean of NashConv is at most ``reach``; None: it never is."""
    means = running_mean(points, NASH_CONV, mean_over)
    there = [point["games"] for point, mean in zip(points, means, strict=True) if mean <= reach]
    return there[0] if there else None


def run(config: Mapping[str, Any], overrides: Sequence[str]) -> Result:
    """Train what is not trained yet, and put the result together.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    check(config)
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)  # the model is so small that several threads only wait for each other
    logging.disable_progress_bar()
    composed = compose_run(config["overrides"])
    models = {start: warm_start(composed, start) for start in config["warm_starts"]}
    preset = OmegaConf.to_container(composed, resolve=False)
    planned = [
        (handicap, arm, seed, start)
        for seed in config["seeds"]
        for handicap, arm in config["arms"]
        for start in config["warm_starts"]
    ]
    runs = []
    policy: Policy | None = None
    for number, (handicap, arm, seed, start) in enumerate(planned, 1):
        file = _file(config, preset, handicap, arm, seed, start, weights_digest(models[start]))
        if not file.is_file():
            began = time.monotonic()
            policy = policy or Policy(models[start], composed, config["compile"])
            policy.load(models[start])
            trained = train(policy, handicap, arm, seed, config, composed)
            told = {"seconds": round(time.monotonic() - began, 1), "commit": current_commit()}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({**trained, **told}, allow_nan=False) + "\n")
            said = f"c = {handicap:g}, {arm}, warm start {start}, seed {seed}: {told['seconds']:.0f} s"
            print(f"{number}/{len(planned)}: {said}", flush=True)
        runs.append(json.loads(file.read_text(encoding="utf-8")))
    rows = [
        row(handicap, arm, seed, start, of_run, config)
        for (handicap, arm, seed, start), of_run in zip(planned, runs, strict=True)
    ]
    return Result(
        name=NAME,
        title=TITLE,
        command=command_line(MODULE, overrides),
        commit=", ".join(dict.fromkeys(of_run["commit"] for of_run in runs)),
        seeds=tuple(config["seeds"]),
        games=sum(int(of_run["points"][-1]["games"]) for of_run in runs),
        minutes=round(sum(of_run["seconds"] for of_run in runs) / 60, 1),
        settings=_plain({key: value for key, value in config.items() if key not in ("work", "output")}),
        rows=rows,
        figures={
            "curves": [[round(point[NASH_CONV], 4) for point in of_run["points"]] for of_run in runs],
            "variances": [of_run["variances"] for of_run in runs],
            "models": [weights_digest(model) for model in models.values()],
        },
    )


def row(
    handicap: float, arm: str, seed: int, start: int, of_run: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """A run's outcome."""
    points = of_run["points"]
    last = points[-1]["games"]
    until = games_until(points, config["reach"], config["mean_over"])
    recent = [point[NASH_CONV] for point in points if point["games"] > last - config["mean_over"]]
    return {
        "handicap": handicap,
        "arm": arm,
        "warm_start": start,
        "seed": seed,
        "reached": until is not None,
        "games_until": last if until is None else until,
        NASH_CONV: fmean(recent),
        "illegal": max(point["illegal"] for point in points),
    }


def check(config: Mapping[str, Any]) -> None:
    """Check the config before anything is trained.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    for handicap, arm in config["arms"]:
        if handicap not in GAMES or arm not in ARMS:
            raise ValueError(
                f"arms: [{handicap}, {arm}]: must be one of {', '.join(map(str, GAMES))} with one of {', '.join(ARMS)}"
            )
    trained = [tuple(arm) for arm in config["arms"]]
    for handicap, *compared in (pair for family in config["comparisons"].values() for pair in family):
        if missing := [arm for arm in compared if (handicap, arm) not in trained]:
            raise ValueError(f"comparisons: [{handicap}, {', '.join(compared)}]: {missing[0]} is not in arms")
    for key, least in (("warm_starts", 2), ("seeds", 1)):
        if len(config[key]) < least or len(set(config[key])) < len(config[key]):
            raise ValueError(f"{key}={config[key]}: must be different numbers, at least {least}")
    for key in ("every", "variances_every"):
        if config["steps"] % config[key]:
            raise ValueError(f"steps={config['steps']}: must be a multiple of {key}={config[key]}")
    if config["group"] < 2:
        raise ValueError(f"group={config['group']}: must be at least 2")


def _file(config: Mapping[str, Any], preset: Any, handicap: float, arm: str, seed: int, start: int, model: str) -> Path:
    """Where a run is kept; other settings, also of the preset, are another file."""
    shared = {key: config[key] for key in ("steps", "every", "variances_every", "group")}
    settings = json.dumps([handicap, arm, seed, model, shared, preset], sort_keys=True, default=str)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return Path(config["work"]) / f"c{handicap:g}-{arm.replace(' ', '_')}-{start}-{seed}-{digest}.json"


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """As it is read back from JSON, whose keys are strings."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


if __name__ == "__main__":
    run_experiment(NAME, run)
