"""Self-play without the machinery: the same games, prompts, baselines, pool and loss, on one core, in plain torch.

For settings to be compared over many seeds. A step of the real trainer on two cores takes seconds, most of which are
messages between processes; for a game with a few texts and a model of a million parameters, it need not. Everything
that decides what is learned is the trainer's own (``schedule``, ``match``, ``prompts``, ``advantage``, ``league``) but
two: turns are sampled from the model itself, not by vLLM, and the update is ``quick_update``. What the config says
beyond that is refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf, open_dict

from experiments.curve import Course
from experiments.exact_results import against_both
from experiments.learning_page import OWN_PAST, WORST_PAST
from experiments.quick_sampler import CachedSampler
from experiments.quick_update import Learner, LossSettings, Row, Weight, rate
from recipe.spiral.evaluation.exploitability.information_sets import ENUMERATED, Floats, GameTree, game_tree
from recipe.spiral.evaluation.exploitability.nash_conv import measure, nash_conv
from recipe.spiral.evaluation.exploitability.policy_table import PolicyTable, read_scores
from recipe.spiral.evaluation.exploitability.tabulated import average_policy, expected_rewards, together
from recipe.spiral.evaluation.report.points import Point, measures_of
from recipe.spiral.evaluation.report.sheets import MOST_INFORMATION_SETS
from recipe.spiral.games import make
from recipe.spiral.match import Rules, play
from recipe.spiral.opponents.league import League
from recipe.spiral.play.players import Player, PolicyPlayer
from recipe.spiral.play.prompts import encoder
from recipe.spiral.play.records import SELF_PLAY, GameRecord
from recipe.spiral.play.seats import Seat
from recipe.spiral.play.seeds import GameKey
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.serving.schedule import parse_games, training_row

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: What the quick loop cannot do otherwise: keys of the config, and what they must be.
FIXED: dict[str, Any] = {
    "batch_unit": "games",
    "num_mini_batches": 1,
    "opponents": [],
    "draw_retry.enabled": False,
    "prompt.style": "state",
    "rules.truncated": "illegal",
    "data.games_per_start": 1,
    "actor_rollout_ref.actor.ppo_epochs": 1,
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
    "actor_rollout_ref.model.lora_rank": 0,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.top_k": -1,
    "algorithm.adv_estimator": "rae",
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_zero_advantages": False,
    "algorithm.filter_draws": False,
    "fsp.initial": [],
}


def check(config: DictConfig) -> str:
    """The game's id.

    Raises:
        ValueError: the quick loop cannot do what the config says; the message names the setting.
    """
    for key, value in FIXED.items():
        if (found := OmegaConf.select(config, key)) != value:
            raise ValueError(f"{key}={found}: the quick loop knows only {value}; use loop=verl")
    rate(config.actor_rollout_ref.actor.optim, 1)
    shares = parse_games(config.games)
    if [share.id for share in shares] not in [[game] for game in ENUMERATED] or shares[0].template or shares[0].style:
        raise ValueError(
            f"games={config.games}: the quick loop plays one of {', '.join(ENUMERATED)}, with prompts as prompt says; "
            "use loop=verl"
        )
    return shares[0].id


def run(config: DictConfig, every: int, model: Path) -> Course:
    """Train as the config says, from its seed, and measure before the first step and then every so many.

    The policy of the end is left in the folder ``model``, as transformers writes it.

    Raises:
        ValueError: see ``check``.
    """
    game = check(config)
    with TemporaryDirectory() as folder, open_dict(config):
        config.run_dir = folder
        trained = _Run(config, game)
        course = trained.course(every)
        trained.save(model)
        return course


class _Models:
    """What serves the pool's members: the models themselves (``league.Engine``)."""

    def __init__(self, sampler: Callable[[PreTrainedModel], CachedSampler]) -> None:
        self._sampler = sampler
        self.held: dict[str, CachedSampler] = {}

    def hold(self, models: Mapping[str, Path]) -> dict[str, int | None]:
        from transformers import AutoModelForCausalLM

        for name, path in models.items():
            if name not in self.held:
                self.held[name] = self._sampler(AutoModelForCausalLM.from_pretrained(path).eval())
        return dict.fromkeys(models)

    def sleep(self) -> None:
        """There is nothing to give back."""


class _Run:
    def __init__(self, config: DictConfig, game: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from recipe.spiral.main_spiral import provide_model

        provide_model(config)
        actor, path = config.actor_rollout_ref.actor, config.actor_rollout_ref.model.path
        self.config, self.game, self.tree = config, game, game_tree(game)
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path)
        self.rules = Rules.from_config(config.rules)
        # a game of a few texts asks for the same ones again and again
        chat = config.data.apply_chat_template_kwargs
        self.encode = cache(encoder(self.tokenizer, config.prompt.template, config.prompt.style, **chat))
        self.decode = cache(lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)))
        self.steps = int(config.trainer.total_training_steps)
        loss = LossSettings(
            scale=float(actor.loss_scale_factor),
            entropy=float(actor.entropy_coeff),
            kl=float(actor.kl_loss_coef) if actor.use_kl_loss else None,
            kl_type=str(actor.kl_loss_type),
            grad_clip=float(actor.grad_clip),
        )
        self.learner = Learner(self.model, loss, actor.optim, self.steps)
        rae = config.algorithm.rae
        self.baselines = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline, rae.by_opponent)
        self.league = League.from_config(config)
        self.models = _Models(self._sampler)
        self.league.engine = self.models
        self.sampler = self._sampler(self.model)

    def _sampler(self, model: PreTrainedModel) -> CachedSampler:
        eos = self.tokenizer.eos_token_id
        return CachedSampler(model, int(eos), int(self.config.data.max_response_length))

    def course(self, every: int) -> Course:
        readings, points = [self._read()], []
        points.append(self._point(0, readings[0]))
        if self.league.due(0):
            self.league.join(0, self.model.save_pretrained)
        for step in range(1, self.steps + 1):
            records = self._play(step)
            self.learner.update(self._rows(records))
            self.sampler.forget()
            self.baselines.update(records)
            self.league.count(records, [])
            if self.config.ref_update_freq and step % self.config.ref_update_freq == 0:
                self.learner.refresh()
            if self.league.due(step):
                self.league.join(step, self.model.save_pretrained)
            if step % every == 0:
                readings.append(self._read())
                points.append(self._point(step, readings[-1]))
        return _course(self.tree, readings, points)

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    # -- a step --------------------------------------------------------------------------------------------------------

    def _play(self, step: int) -> list[GameRecord]:
        self.league.begin_step(step)
        batch, shares = int(self.config.data.train_batch_size), parse_games(self.config.games)
        rows = [training_row(shares, int(self.config.seed), batch, (step - 1) * batch + i) for i in range(batch)]
        keys = [GameKey(**row["key"]) for row in rows]
        seats = self.league.seat([(key, self.game) for key in keys])

        async def all_games() -> list[GameRecord]:
            return await asyncio.gather(*map(self._game, keys, seats))

        return asyncio.run(all_games())

    async def _game(self, key: GameKey, seat: Seat) -> GameRecord:
        policy = self._player("policy", self.sampler)
        players: tuple[Player, Player] = (policy, policy)
        if seat.opponent != SELF_PLAY:
            other = self._player(seat.name, self.models.held[seat.name])
            players = (policy, other) if seat.trainable == (0,) else (other, policy)
        record = await play(key, self.game, make(self.game, key.game_seed()), players, seat.trainable, self.rules)
        record = replace(record, opponent=seat.opponent)
        return replace(record, baselines=self.baselines.of(record))

    def _player(self, name: str, sampler: CachedSampler) -> Any:
        return PolicyPlayer(
            generate=sampler.generate,
            encode=self.encode,
            decode=lambda ids: self.decode(tuple(ids)),
            sampling={},
            prompt_length=int(self.config.data.max_prompt_length),
            name=name,
        )

    def _rows(self, records: Sequence[GameRecord]) -> dict[Row, Weight]:
        """The learners' turns with their advantages, those that are alike together."""
        gamma, scale = float(self.config.algorithm.gamma), float(self.config.algorithm.reward_scale)
        rows: defaultdict[Row, Weight] = defaultdict(Weight)
        for record in records:
            for player in record.trainable:
                turns, baseline = record.turns_of(player), record.baselines[player]
                assert baseline is not None
                for turn in turns:
                    assert turn.tokens is not None
                    row = rows[tuple(turn.tokens.prompt_ids), tuple(turn.tokens.response_ids)]
                    later = len(turns) - 1 - turn.turn
                    row.advantage += scale * gamma**later * (record.rewards[player] - baseline)
                    row.count += 1
        return rows

    # -- measuring -----------------------------------------------------------------------------------------------------

    def _read(self) -> PolicyTable:
        from recipe.spiral.models.forest import Scored, probabilities

        def score(asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
            eos = self.tokenizer.eos_token_id
            groups = [
                [
                    Scored(self.encode(seen, ()), [*self.tokenizer.encode(text, add_special_tokens=False), eos])
                    for text in texts
                ]
                for seen, texts in asked
            ]
            return [np.log(np.maximum(row, 1e-300)).tolist() for row in probabilities(self.model, groups)]

        return read_scores(self.tree, score)

    def _point(self, step: int, reading: PolicyTable) -> Point:
        if self.tree.is_tree:
            found = measures_of(asdict(measure(reading, self.rules, with_openspiel=False)))
        else:
            found = against_both(self.tree, reading.table)
        return Point(step, step * int(self.config.data.train_batch_size), found)


def _course(tree: GameTree, readings: Sequence[PolicyTable], points: list[Point]) -> Course:
    tables = [reading.table for reading in readings]
    # positions must not merge for the average policy
    average = {tree.game_id: nash_conv(tree, average_policy(tree, tables[1:]))} if tree.is_tree else {}
    past = [_against(tree, tables[-1], table) for table in tables[:-1]]
    beside = {OWN_PAST: float(np.mean(past)), WORST_PAST: float(np.min(past))}
    small = tree.is_tree and len(tree.information_sets) <= MOST_INFORMATION_SETS
    return Course(points, beside, average, 0.0, _policy(tree, tables[-1]) if small else {})


def _policy(tree: GameTree, table: Floats) -> dict[str, dict[str, float]]:
    return {
        f"{one.private} after {', '.join(one.history) or 'nothing'}": dict(
            zip(one.actions, map(float, probabilities), strict=False)
        )
        for one, probabilities in zip(tree.information_sets, table, strict=True)
    }


def _against(tree: GameTree, policy: Floats, other: Floats) -> float:
    """What a policy gets of another one, as the mean of both roles."""
    first = expected_rewards(tree, together(tree, policy, other))[0]
    return float(first + expected_rewards(tree, together(tree, other, policy))[1]) / 2
