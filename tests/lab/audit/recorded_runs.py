"""Folders of runs as a trainer leaves them, in every mode, with players who draw their answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play, random_opening
from recipe.spiral.players.player import Position, RandomPlayer, Response
from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import RoleBaselines, rae_advantages
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.checkpoints import name_latest, write_state
from recipe.spiral.storage.run_files import CONFIG
from recipe.spiral.training.credit import Filters, GroupBaselines
from tests import made_configs

SEED, STEPS, GAMES = 5, 4, 12
MEMBER = "step_000001"
#: Of the asynchronous modes: ``asynchronous.max_staleness``, and the batches that are played ahead.
MOST, AHEAD = 1, 2
#: The parts of the config that an audit reads; all of it takes half a second to read back.
READ = ("run_dir", "seed", "games", "rules", "algorithm", "batch_unit", "branching", "draw_retry", "asynchronous")
READ += ("data", "records", "trainer.v1", "trainer.default_local_dir")


class Sampler:
    """In the policy's place: random actions with tokens; sometimes no answer, sometimes one that is cut off.

    Args:
        written: the first and the last version of the weights that write a turn after the other; None: the one before
            the game's step.
        name: of a past self, which says who it is.
    """

    def __init__(self, written: tuple[int, int] | None = None, name: str = "policy") -> None:
        self.name, self._written = name, written

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("sampler", position.player, position.turn))
        text = (await RandomPlayer().respond(position)).text
        length, version = rng.randint(1, 3), position.key.step - 1
        log_probs = [-rng.random() for _ in range(length)]
        versions = (version, version)
        if self._written:
            version = min(self._written[0] + position.turn, self._written[1])
            versions = (version, min(version + 1, self._written[1]))
        own = self.name == "policy"
        tokens = Tokens([1, 2], list(range(length)), log_probs, versions if own else None, None if own else self.name)
        kind = rng.random()
        return Response("I pass." if kind < 0.05 else text, tokens, truncated=kind > 0.95)


def config(folder: Path, *overrides: str) -> Any:
    """What an audit reads of the config of a run in ``folder / "run"``, as a start writes it."""
    games, rules = "games=[TicTacToe,{id: KuhnPoker, weight: 2}]", "rules.illegal_rewards=[-1.5,0.5]"
    sizes = f"data.train_batch_size={GAMES}", f"asynchronous.max_staleness={MOST}", f"seed={SEED}"
    made = made_configs.config(folder, games, rules, *sizes, *overrides)
    kept = OmegaConf.create()
    for key in READ:
        value = OmegaConf.select(made, key)
        OmegaConf.update(
            kept, key, OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        )
    return kept


def drawn(settings: Any, number: int, starts: int | None) -> tuple[GameKey, str]:
    """The key and the game of a number in the run."""
    same = settings.data.games_per_start
    row = training_row(parse_games(settings.games), SEED, starts, number // same, same)
    first = GameKey(**row["key"])
    return replace(first, index=first.index + number % same), row["data_source"]


def played(settings: Any, key: GameKey, name: str, *players: Any, trainable: tuple[int, ...] = (0, 1)) -> GameRecord:
    game, rules = make(name, key.game_seed()), Rules.from_config(settings.rules)
    share = next(share for share in parse_games(settings.games) if share.id == name)
    past = random_opening(key, game, share.random_opening)
    return asyncio.run(play(key, name, game, players or (Sampler(), Sampler()), trainable, rules, past=past))


def step_of_games(settings: Any, step: int) -> list[GameRecord]:
    """Self-play; a player failed in one game, which was void and was played again."""
    records = []
    for index in range(GAMES):
        key, name = drawn(settings, (step - 1) * GAMES + index, GAMES // settings.data.games_per_start)
        if index == 2 + step:
            records.append(GameRecord(key, name, ("policy", "policy"), (0, 1), discarded="void"))
            key = key.next_retry()
        records.append(played(settings, key, name))
    return records


def step_with_opponents(settings: Any, step: int) -> list[GameRecord]:
    """A third of self-play, a third against the pool, a third against random play; draws are played again, twice."""
    records = []
    for index in range(GAMES):
        key, name = drawn(settings, (step - 1) * GAMES + index, GAMES)
        opponent, learner = ("self", "pool", "random")[index % 3], index % 2
        other = Sampler(name=MEMBER) if opponent == "pool" else RandomPlayer()
        players = {"self": ()}.get(opponent, (Sampler(), other) if learner == 0 else (other, Sampler()))
        trainable = (0, 1) if opponent == "self" else (learner,)
        if index == 3:  # a game of another program, which failed, and failed again when it was played anew: given up
            void = GameRecord(key, name, ("policy", "policy"), (0, 1), discarded="void")
            records += [void, replace(void, key=key.next_retry())]
            continue
        record = replace(played(settings, key, name, *players, trainable=trainable), opponent=opponent)
        while record.result(0) == "draw" and record.key.retry < settings.draw_retry.max_retries:
            records.append(replace(record, discarded="draw"))
            record = played(settings, record.key.next_retry(), name, *players, trainable=trainable)
            record.opponent = opponent
        if index == 2:  # an endpoint that does not answer: given up
            record = replace(record, turns=[], rewards=(0.0, 0.0), discarded="void", reason="down")
        records.append(record)
    return records


def step_of_turns(settings: Any, step: int, launched: int) -> list[GameRecord]:
    """The fewest games with enough turns, and two more that were launched in vain."""
    records: list[GameRecord] = []
    while sum(record.discarded == "surplus" for record in records) < 2:
        key, name = drawn(settings, launched + len(records), None)
        enough = sum(len(record.turns) for record in records) >= settings.data.train_batch_size
        records.append(played(settings, replace(key, step=step, index=len(records)), name))
        records[-1].discarded = "surplus" if enough else None
    return records


def asynchronous_steps(settings: Any) -> dict[int, tuple[list[GameRecord], list[int]]]:
    """Each step trains some of the games that are under way, and leaves others; in step 3 a game is dropped."""
    draw, numbers, in_flight = random.Random(1), count(), []
    made = {}
    for step in range(1, STEPS + 1):
        in_flight += [next(numbers) for _ in range((AHEAD + 1) * GAMES - len(in_flight))]
        sampled = sorted(draw.sample(in_flight, GAMES + (step == 3)))
        records = []
        for place, number in enumerate(sampled):
            stale = (step, place) == (3, 4)
            policy = Sampler((0, 2) if stale else (max(step - 1 - MOST, 0), step - 1))
            record = played(settings, *drawn(settings, number, GAMES), policy, policy)
            records.append(replace(record, discarded="stale") if stale else record)
        in_flight = [number for number in in_flight if number not in sampled]
        made[step] = records, in_flight
    return made


def train(settings: Any, records: list[GameRecord], moving: RoleBaselines) -> None:
    """Fill in what a trainer does, with the trainer's functions."""
    algorithm, filters = settings.algorithm, Filters.from_config(settings)
    grouped = algorithm.adv_estimator == "grpo_role"
    groups = GroupBaselines(records, algorithm.norm_adv_by_std_in_grpo)
    for record in records:
        record.baselines = groups.of(record) if grouped else moving.of(record)
        for turn in record.trainable_turns():
            turn.left_out = filters.reason(record, turn, record.baselines[turn.player])
            if turn.left_out is None:
                advantages, _ = rae_advantages(
                    torch.tensor([record.rewards[turn.player]]),
                    torch.tensor([record.baselines[turn.player]]),
                    torch.tensor([record.turns_of(turn.player)[-1].turn - turn.turn]),
                    torch.ones(1, 1),
                    algorithm.gamma,
                    algorithm.reward_scale * (groups.scale(record, turn.player) if grouped else 1.0),
                )
                turn.advantage = advantages.item()
    if not grouped:
        moving.update(records)


def make_run(folder: Path, *overrides: str, opponents: bool = False) -> Path:
    """A run's folder in another one: config, games, checkpoints at every second step."""
    settings, run_dir = config(folder, *overrides), folder / "run"
    run_dir.mkdir(parents=True)
    OmegaConf.save(settings, run_dir / CONFIG)
    rae = settings.algorithm.rae
    moving = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline, rae.by_opponent)
    ahead = {} if settings.trainer.v1.trainer_mode == "sync" else asynchronous_steps(settings)
    launched = 0
    for step in range(1, STEPS + 1):
        in_flight: list[int] = []
        if ahead:
            records, in_flight = ahead[step]
        elif settings.batch_unit == "turns":
            records = step_of_turns(settings, step, launched)
        else:
            records = (step_with_opponents if opponents else step_of_games)(settings, step)
        launched += len(records)
        train(settings, [record for record in records if record.discarded is None], moving)
        if step % settings.records.every == 0:
            RecordFolder(run_dir / "games").write("train", step, records)
        if step % 2 == 0:
            named = [[number // GAMES + 1, number % GAMES, None] for number in in_flight]
            state = {"step": step, "settings": {"seed": SEED}, "baselines": moving.state_dict(), "in_flight": named}
            write_state(run_dir / "checkpoints" / f"global_step_{step}", state)
            name_latest(run_dir / "checkpoints", step)
    return run_dir


def rewrite(run_dir: Path, step: int, change: Callable[[list[GameRecord]], Any]) -> None:
    """Change a step's games, as one who writes their digests anew."""
    folder = RecordFolder(run_dir / "games")
    games = list(folder.read_step("train", step))
    change(games)
    folder.write("train", step, games)
