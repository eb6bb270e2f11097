"""The audit of runs with opponents: baselines by kind, who answered, draws that were played again, games given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, RandomPlayer, Response
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.checkpoints import name_latest, write_state
from recipe.spiral.storage.run_files import CONFIG
from tests.lab.audit.test_audit import GAMES, SEED, STEPS, Sampler, audit, config
from tests.made import repack, unpacked

MEMBER = "step_000001"


class Member(Sampler):
    """A past self, which says who it is."""

    name = MEMBER

    async def respond(self, position: Position) -> Response:
        response = await super().respond(position)
        assert response.tokens is not None
        return replace(response, tokens=replace(response.tokens, weight_versions=None, answered_by=MEMBER))


def played(key: GameKey, game: str, learner: int | None, opponent: str, settings: Any) -> GameRecord:
    """A game of the policy, as the rollout records it."""
    policy, other = Sampler(), Member() if opponent == "pool" else RandomPlayer()
    players = [policy, policy] if learner is None else [policy, other] if learner == 0 else [other, policy]
    trainable = (0, 1) if learner is None else (learner,)
    rules = Rules.from_config(settings.rules)
    record = asyncio.run(play(key, game, make(game, key.game_seed()), players, trainable, rules))
    return replace(record, opponent=opponent)


def step_games(settings: Any, step: int) -> list[GameRecord]:
    """A third of self-play, a third against the pool, a third against random play; draws are played again, twice."""
    records = []
    for index in range(GAMES):
        row = training_row(parse_games(settings.games), SEED, GAMES, (step - 1) * GAMES + index)
        key = GameKey(**row["key"])
        opponent = ("self", "pool", "random")[index % 3]
        learner = None if opponent == "self" else index % 2
        if index == 3:  # a game of another program, which failed, and failed again when it was played anew: given up
            names = ("policy", "policy")
            tries = (key, key.next_retry())
            records += [GameRecord(again, row["data_source"], names, (0, 1), discarded="void") for again in tries]
            continue
        record = played(key, row["data_source"], learner, opponent, settings)
        for _ in range(settings.draw_retry.max_retries):
            if record.result(0) != "draw":
                break
            record.discarded = "draw"
            records.append(record)
            record = played(record.key.next_retry(), row["data_source"], learner, opponent, settings)
        if opponent == "random" and index == 2:  # an endpoint that does not answer: given up
            record = replace(record, turns=[], rewards=(0.0, 0.0), discarded="void", reason="down")
        records.append(record)
    return records


def make_run(run_dir: Path, by_opponent: bool = True) -> Path:
    settings = config(games=["TicTacToe"], draw_retry={"enabled": True, "max_retries": 2})
    settings.algorithm.rae.by_opponent = by_opponent
    run_dir.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(settings, run_dir / CONFIG)
    moving, folder = RoleBaselines(by_opponent=by_opponent), RecordFolder(run_dir / "games")
    for step in range(1, STEPS + 1):
        records = step_games(settings, step)
        counted = [record for record in records if record.discarded is None]
        for record in counted:
            record.baselines = moving.of(record)
            for turn in record.trainable_turns():
                turn.advantage = record.rewards[turn.player] - (record.baselines[turn.player] or 0.0)
        moving.update(counted)
        folder.write("train", step, records)
    state = {"step": STEPS, "settings": {"seed": SEED}, "baselines": moving.state_dict()}
    write_state(run_dir / "checkpoints" / f"global_step_{STEPS}", state)
    name_latest(run_dir / "checkpoints", STEPS)
    return run_dir


@pytest.mark.parametrize("by_opponent", [True, False])
def test_a_run_with_opponents_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], by_opponent: bool) -> None:
    run_dir = make_run(tmp_path, by_opponent)
    status, _, found = audit(run_dir, capsys)
    assert (status, found["problems"]) == (0, [])
    assert found["discarded"]["void"] == 3 * STEPS and found["discarded"]["draw"] > 0
    values = json.loads((run_dir / f"checkpoints/global_step_{STEPS}/spiral.json").read_text())["baselines"]["values"]
    assert {value[2] for value in values} == ({"self", "pool", "random"} if by_opponent else {"self"})


def step_with_a_draw(run_dir: Path) -> tuple[Path, list[dict[str, Any]]]:
    for file in sorted((run_dir / "games").glob("train_step_*")):
        games = [json.loads(line) for line in unpacked(file).splitlines()]
        if any(game["discarded"] == "draw" for game in games):
            return file, games
    raise AssertionError("no draws: take another seed")


def first(games: list[dict[str, Any]], opponent: str, **fields: Any) -> dict[str, Any]:
    return next(
        game for game in games if game["opponent"] == opponent and all(game[name] == fields[name] for name in fields)
    )


def member_answers_for_the_policy(games: list[dict[str, Any]]) -> None:
    game = first(games, "self", discarded=None)
    game["turns"][0]["tokens"] |= {"answered_by": MEMBER}


def policy_answers_for_a_member(games: list[dict[str, Any]]) -> None:
    game = first(games, "pool", discarded=None)
    turn = next(turn for turn in game["turns"] if turn["player"] not in game["trainable"])
    turn["tokens"] |= {"answered_by": None, "weight_versions": [2, 2]}


def a_members_turn_is_trained(games: list[dict[str, Any]]) -> None:
    game = first(games, "pool", discarded=None)
    next(turn for turn in game["turns"] if turn["player"] not in game["trainable"])["advantage"] = 1.0


def a_draw_was_not_played_again(games: list[dict[str, Any]]) -> None:
    retried = {game["key"]["index"] for game in games if game["discarded"] == "draw"}
    games[:] = [game for game in games if game["key"]["index"] not in retried or game["key"]["retry"] == 0]
    for game in games:
        if game["key"]["index"] in retried:
            game["discarded"] = None


def self_play_is_given_up(games: list[dict[str, Any]]) -> None:
    game = first(games, "self", discarded=None)
    game |= {"discarded": "void", "turns": [], "baselines": [None, None]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (member_answers_for_the_policy, f"answered by {MEMBER}, should be None"),
        (policy_answers_for_a_member, f"answered by None, should be {MEMBER}"),
        (a_members_turn_is_trained, "does not learn, and yet it was trained"),
        (a_draw_was_not_played_again, "is a draw after 0 draws, and should have been played again"),
        (self_play_is_given_up, "was discarded (void) and not played again"),
    ],
)
def test_what_is_changed_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[list[dict[str, Any]]], None], expected: str
) -> None:
    run_dir = make_run(tmp_path)
    file, games = step_with_a_draw(run_dir)
    change(games)
    repack(file, "".join(json.dumps(game) + "\n" for game in games))
    status, _, found = audit(run_dir, capsys)
    assert status == 1
    assert any(expected in problem for problem in found["problems"]), found["problems"]
