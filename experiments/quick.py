"""The quick loop: self-play with the trainer's games, prompts, baselines, pool and loss, in plain torch on one core.

It compares settings over many seeds. A step of the real trainer takes seconds on two cores, mostly for messages between
processes; a game with few texts and a model of a million parameters do not need them. Everything that decides what is
learned is the trainer's own (``schedule``, ``match``, ``prompts``, ``rae``, ``league``), with two exceptions: turns are
sampled from the model itself, not by vLLM, and the update is ``quick_update``. Other settings are refused.

In an asynchronous mode each batch is trained so many steps after its launch as batches are played ahead. That is what
the trainer does with ``asynchronous.max_staleness`` equal to that number, if no game goes on over an update.
"""

from __future__ import annotations

import gc
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, open_dict

from experiments.curve_points import Point
from experiments.learning_page import OWN_PAST, REFERENCE, WORST_PAST
from experiments.quick_check import ahead, check
from experiments.quick_methods import Methods, ObservationBaselines, regularised
from experiments.quick_sampler import CachedSampler, Row, play_out
from experiments.quick_update import Learner, LossSettings, Pair, Weight
from experiments.result import Curve, weights_digest
from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import measure, nash_conv
from recipe.spiral.lab.evaluation.exploitability.optimality import exact_results
from recipe.spiral.lab.evaluation.exploitability.policy_table import PolicyTable, read_scores
from recipe.spiral.lab.evaluation.exploitability.tabulated import (
    average_policy,
    expected_reward,
    renormalised,
    together,
)
from recipe.spiral.lab.evaluation.outputs.points import measures_of
from recipe.spiral.lab.evaluation.outputs.sheets import MOST_INFORMATION_SETS
from recipe.spiral.match import Rules, play, random_opening
from recipe.spiral.opponents.league import League
from recipe.spiral.players.player import Player
from recipe.spiral.players.policy import PolicyPlayer
from recipe.spiral.players.prompts import encoder
from recipe.spiral.players.records import SELF_PLAY, GameRecord
from recipe.spiral.players.seats import Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import Baselines, RoleBaselines
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.spin.branches import branch_keys
from recipe.spiral.training.group_baselines import GroupBaselines

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from recipe.spiral.spin.dpo import DpoSettings


def run(config: DictConfig, every: int, model: Path, on_point: Callable[[Point], object] = lambda point: None) -> Curve:
    """Train as the config says, from its seed, and measure before the first step and then every so many steps.

    Args:
        config: of ``main_spiral``.
        every: steps between two measurements.
        model: the folder that gets the last policy, as transformers writes it.
        on_point: called with each measurement.

    Raises:
        ValueError: see ``check``.
    """
    game = check(config)
    with TemporaryDirectory() as folder, open_dict(config):
        config.run_dir = folder
        trained = _Run(config, game)
        curve = trained.curve(every, on_point)
        trained.save(model)
        return curve


class _Models:
    """Serves the pool's members by the models themselves, in place of an engine (``league.Engine``)."""

    def __init__(self, sampler: Callable[[PreTrainedModel], CachedSampler]) -> None:
        self._sampler = sampler
        self.held: dict[str, CachedSampler] = {}
        self.loads = self.kept = 0

    def load(self, models: Mapping[str, Path], in_play: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        from transformers import AutoModelForCausalLM

        new = models.keys() - self.held.keys()
        self.loads, self.kept = len(new), len(models) - len(new)
        for name in new:
            self.held[name] = self._sampler(AutoModelForCausalLM.from_pretrained(models[name]).eval())
        return dict.fromkeys(models, ())

    def sleep(self, again: Collection[str] = (), in_play: Collection[str] | None = None) -> None:
        """An engine would free its memory; there is none here."""


class _Run:
    def __init__(self, config: DictConfig, game: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from recipe.spiral.main_spiral import provide_model

        provide_model(config)
        actor, path = config.actor_rollout_ref.actor, config.actor_rollout_ref.model.path
        correction = config.algorithm.rollout_correction
        self.methods = Methods.from_config(config)
        self.config, self.game, self.tree = config, game, game_tree(game)
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path)
        self.start_digest = weights_digest(path)
        self.rules = Rules.from_config(config.rules)
        self.opening = parse_games(config.games)[0].random_opening
        # a game with few texts asks for the same texts again and again
        chat = config.data.apply_chat_template_kwargs
        self.encode = cache(encoder(self.tokenizer, config.prompt.template, config.prompt.style, **chat))
        self.decode = cache(lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)))
        #: How many turns of a game are taken anew, and how often.
        self.branching = int(config.branching.states), int(config.branching.continuations)
        self.steps = int(config.trainer.total_training_steps)
        loss = LossSettings(
            scale=float(actor.loss_scale_factor),
            entropy=float(actor.entropy_coeff),
            kl=float(actor.kl_loss_coef) if actor.use_kl_loss else None,
            kl_in_loss=self.methods.regularise == "loss",
            kl_end=self.methods.kl_end,
            kl_type=str(actor.kl_loss_type),
            grad_clip=float(actor.optim.clip_grad),
            dpo=self._dpo(),
            rollout_is=correction.rollout_is,
            most=float(correction.rollout_is_threshold),
        )
        self.sampler = self._sampler(self.model, trained=True)
        self.learner = Learner(self.sampler.distributions, loss, actor.optim, self.steps)
        rae = config.algorithm.rae
        self.baselines = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline, rae.by_opponent)
        self.by_observation = ObservationBaselines(rae.decay)
        self.league = League(config)
        self.models = _Models(self._sampler)
        self.league.engine = self.models
        #: Who plays in this step, by name.
        self.players: dict[str, Player] = {}
        #: Games so far, branches counted.
        self.games = 0

    def _dpo(self) -> DpoSettings | None:
        """How pairs are compared; None: another loss. (The module of the loss imports verl, which takes seconds.)"""
        if self.config.algorithm.adv_estimator != "dpo":
            return None
        from recipe.spiral.spin.dpo import DpoSettings

        return DpoSettings.from_config(self.config.algorithm)

    def _sampler(self, model: PreTrainedModel, trained: bool = False) -> CachedSampler:
        longest, temperature = self.config.data.max_response_length, self.config.actor_rollout_ref.rollout.temperature
        return CachedSampler(model, int(self.tokenizer.eos_token_id), int(longest), trained, float(temperature))

    def curve(self, every: int, on_point: Callable[[Point], object]) -> Curve:
        policy_tables: list[PolicyTable] = []
        points: list[Point] = []

        def measure(step: int) -> None:
            policy_tables.append(self._read(self.model))
            points.append(self._point(step, policy_tables[-1]))
            on_point(points[-1])

        measure(0)
        if self.league.due(0):
            self.league.join(0, self.model.save_pretrained)
        gc.freeze()  # a third of a step would go into looking for garbage among all that was imported
        number = int(ahead(self.config))
        batches = deque(self._play(step) for step in range(1, number + 1))
        for step in range(1, self.steps + 1):
            batches.append(self._play(step + number))
            played = batches.popleft()
            baselines = self._baselines(played)
            records = [replace(record, baselines=baselines.of(record)) for record in played]
            self.games += len(records)
            if self.learner.loss.dpo is None:
                self.learner.update(self._rows(records))
            else:
                self.learner.update_by_pairs(self._pairs(records))
            self.sampler.forget()
            self.baselines.update(records)
            self.league.count(records, [])
            if self.config.ref_update_freq and step % self.config.ref_update_freq == 0:
                self.learner.refresh(float(self.config.ref_update_rate))
            if self.league.due(step):
                self.league.join(step, self.model.save_pretrained)
            if step % every == 0:
                measure(step)
        return replace(
            _curve(self.tree, [policy_table.table for policy_table in policy_tables], points), model=self.start_digest
        )

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    # -- a step --------------------------------------------------------------------------------------------------------

    def _play(self, step: int) -> list[GameRecord]:
        self.league.begin_step(step)
        batch, shares = int(self.config.data.train_batch_size), parse_games(self.config.games)
        seed, same = int(self.config.seed), int(self.config.data.games_per_start)
        rows = [training_row(shares, seed, batch, (step - 1) * batch + i, same) for i in range(batch)]
        keys = [GameKey(**row["key"]) for row in rows]
        seats = self.league.seat([(key, self.game) for key in keys])
        self.players = {name: self._player(name, sampler) for name, sampler in self.models.held.items()}
        self.players[SELF_PLAY] = self._player("policy", self.sampler)
        games = play_out([*map(self._game, keys, seats)])
        branches = [branch for game, seat in zip(games, seats, strict=True) for branch in self._branches(game, seat)]
        return sorted([*games, *play_out(branches)], key=lambda record: record.key)

    def _branches(self, record: GameRecord, seat: Seat) -> list[Coroutine[Any, Any, GameRecord]]:
        """A game's branches, as ``rollout`` has them."""
        if not self.branching[0]:
            return []
        places = [place for place, turn in enumerate(record.turns) if turn.player in record.trainable]
        drawn = branch_keys(record.key, len(places), *self.branching)
        actions = [str(turn.action) for turn in record.turns]
        return [self._game(key, seat, [*record.past, *actions[: places[place]]]) for key, place in drawn]

    async def _game(self, key: GameKey, seat: Seat, past: Sequence[str] | None = None) -> GameRecord:
        policy, other = self.players[SELF_PLAY], self.players[seat.opponent.name]
        players = (other, policy) if seat.trainable == (1,) else (policy, other)
        game = make(self.game, key.game_seed())
        if past is None:
            past = random_opening(key, game, self.opening)
        record = await play(key, self.game, game, players, seat.trainable, self.rules, past=past)
        return replace(record, opponent=seat.opponent.kind)

    def _player(self, name: str, sampler: CachedSampler) -> Player:
        return PolicyPlayer(
            generate=sampler.generate,
            encode=self.encode,
            decode=lambda ids: self.decode(tuple(ids)),
            sampling={},
            prompt_length=int(self.config.data.max_prompt_length),
            name=name,
        )

    @staticmethod
    def _pairs(records: Sequence[GameRecord]) -> list[Pair]:
        """The trainer's pairs, as prompts and responses."""
        from recipe.spiral.spin.pairs import find_pairs
        from recipe.spiral.training.launched import Launch
        from recipe.spiral.training.rows import Rows

        players = {record.key.first_try(): record.trainable for record in records}
        launches = [Launch(key, sessions=tuple(f"{key}_{player}" for player in players[key])) for key in players]
        rows = Rows(records, launches)
        turns = dict(zip(rows.keys, rows.turns, strict=True))

        def text(key: str) -> Row:
            tokens = turns[key].tokens
            assert tokens is not None
            return tuple(tokens.prompt_ids), tuple(tokens.response_ids)

        return [(text(chosen), text(rejected)) for chosen, rejected in find_pairs(rows).keys]

    def _baselines(self, records: Sequence[GameRecord]) -> Baselines:
        algorithm = self.config.algorithm
        if algorithm.adv_estimator == "grpo_role":
            return GroupBaselines(records, bool(algorithm.norm_adv_by_std_in_grpo))
        return self.baselines

    def _rows(self, records: Sequence[GameRecord]) -> dict[Row, Weight]:
        """The trainable players' turns with their advantages; turns with the same texts are one row."""
        gamma, baselines = float(self.config.algorithm.gamma), self._baselines(records)
        rows: defaultdict[Row, Weight] = defaultdict(Weight)
        for record, outcomes in zip(records, self._outcomes(records), strict=True):
            for player in record.trainable:
                turns, baseline = record.turns_of(player), record.baselines[player]
                assert baseline is not None
                scale = float(self.config.algorithm.reward_scale) * baselines.scale(record, player)
                for later, turn in zip(reversed(range(len(turns))), turns, strict=True):
                    assert turn.tokens is not None
                    prompt = tuple(turn.tokens.prompt_ids)
                    row = rows[prompt, tuple(turn.tokens.response_ids)]
                    outcome = outcomes.pop((player, turn.turn))
                    if self.methods.baseline == "observation":
                        row.advantage += scale * gamma**later * self.by_observation.compare(prompt, outcome)
                    else:
                        row.advantage += scale * gamma**later * (outcome - baseline)
                    row.count += 1
                    row.log_probs = tuple(turn.tokens.log_probs or ())
        self.by_observation.end_batch()
        return rows

    def _outcomes(self, records: Sequence[GameRecord]) -> list[dict[tuple[int, int], float]]:
        """For each game, by player and turn, what the player gets: its reward, or what ``regularised`` makes of it."""
        if self.methods.regularise == "loss":
            return [
                {(turn.player, turn.turn): record.rewards[turn.player] for turn in record.turns} for record in records
            ]
        rows = [
            (tuple(turn.tokens.prompt_ids), tuple(turn.tokens.response_ids))
            for record in records
            for turn in record.turns
            if turn.tokens is not None
        ]
        ratios, kl = iter(self.learner.ratios(rows, int(self.config.ref_update_freq))), self.learner.kl
        return [
            {
                (turn.player, turn.turn): outcome
                for turn, outcome in zip(
                    record.turns, regularised(record, [next(ratios) for _ in record.turns], kl), strict=True
                )
            }
            for record in records
        ]

    # -- measuring -----------------------------------------------------------------------------------------------------

    def _read(self, model: PreTrainedModel) -> PolicyTable:
        from recipe.spiral.lab.models.forest import Scored, probabilities

        def score(asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
            eos = self.tokenizer.eos_token_id
            response = cache(lambda text: [*self.tokenizer.encode(text, add_special_tokens=False), eos])
            groups = [[Scored(self.encode(seen, ()), response(text)) for text in texts] for seen, texts in asked]
            return [np.log(np.maximum(row, 1e-300)).tolist() for row in probabilities(model, groups)]

        return read_scores(self.tree, score)

    def _point(self, step: int, policy_table: PolicyTable) -> Point:
        if self.tree.is_tree:
            measures = measures_of(asdict(measure(policy_table, self.rules)))
            if self.config.ref_update_freq and self.learner.reference is not None:
                table = self._read(self.learner.reference.model).table
                measures[REFERENCE] = nash_conv(self.tree, renormalised(self.tree, table))
        else:
            measures = exact_results(self.tree, policy_table.table)
        return Point(step, self.games, measures)


def _curve(tree: GameTree, tables: Sequence[Floats], points: list[Point]) -> Curve:
    """The curve with what is computed from the policy tables of all points."""
    # the average policy needs a tree: where positions merge, there is no reach probability to weigh by
    average = {tree.game_id: nash_conv(tree, average_policy(tree, tables[1:]))} if tree.is_tree else {}
    past = [_reward_against(tree, tables[-1], table) for table in tables[:-1]]
    last = {OWN_PAST: float(np.mean(past)), WORST_PAST: float(np.min(past))}
    small = tree.is_tree and len(tree.information_sets) <= MOST_INFORMATION_SETS
    return Curve(points, last, average, 0.0, _policy(tree, tables[-1]) if small else {})


def _policy(tree: GameTree, table: Floats) -> dict[str, dict[str, float]]:
    return {
        f"{state.private} after {', '.join(state.history) or 'nothing'}": dict(
            zip(state.actions, map(float, probabilities), strict=False)
        )
        for state, probabilities in zip(tree.information_sets, table, strict=True)
    }


def _reward_against(tree: GameTree, policy: Floats, other: Floats) -> float:
    """A policy's expected reward against another one, as the mean of both roles."""
    first = expected_reward(tree, together(tree, policy, other), 0)
    return float(first + expected_reward(tree, together(tree, other, policy), 1)) / 2
