# ruff: noqa: F811
"""Branches: games that go on from states of another game, with other samples."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from recipe.spiral import rollout
from recipe.spiral.games import GameFailure
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.spin.branching import branch_keys
from tests.test_rollout import Engine, keys, model, queue, said, self_play, sessions  # noqa: F401  (fixtures)


@pytest.mark.parametrize("opening", [0, 4])
def test_branches_go_on_from_states_of_the_game(model: str, opening: int) -> None:
    """Each is a game with a key of its own, whose first turn has the prompt of the turn that it takes anew."""
    row = self_play(opening and 1)
    outputs = asyncio.run(sessions(row, Engine(), model, {}, (2, 3), opening))
    game, *branches = game_channel.take(keys(row)).records
    before = len(game.past)
    assert bool(before) == bool(opening)
    assert [one.key.retry for one in (game, *branches)] == [0, 1, 2, 3, 4, 5, 6]
    assert {branch.key.start() for branch in branches} == {game.key.start()} == {game.key}
    assert len({branch.key.seed("sampling", 0, 0) for branch in (game, *branches)}) == 7
    for branch in branches:
        place = len(branch.past) - before
        first, again = branch.turns[0], game.turns[place]
        assert branch.past == [*game.past, *(turn.action for turn in game.turns[:place])]
        assert (first.player, first.turn, first.tokens.prompt_ids) == (
            again.player,
            again.turn,
            again.tokens.prompt_ids,
        )
        assert msgspec.json.decode(branch.to_json(), type=GameRecord) == branch
    assert {len(branch.past) - before for branch in branches} == {
        place for _, place in branch_keys(game.key, len(game.turns), states=2, continuations=3)
    }
    for player in (0, 1):
        turns = [turn for one in (game, *branches) for turn in one.turns_of(player)]
        assert [output.response_ids for output in outputs[player]] == said(turns)
        rewards = [one.rewards[player] for one in (game, *branches) for _ in one.turns_of(player)]
        assert [turn.reward_score for turn in outputs[player]] == rewards


def test_a_branch_that_fails_is_void_and_the_game_stays(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    playing = rollout.play

    async def failing(key: GameKey, *args: Any, **more: Any) -> GameRecord:
        if key.retry == 2:
            raise GameFailure("it broke")
        return await playing(key, *args, **more)

    monkeypatch.setattr(rollout, "play", failing)
    row = self_play(0)
    asyncio.run(sessions(row, Engine(), model, {}, (1, 2)))
    played = game_channel.take(keys(row))
    assert [record.key.retry for record in played.records] == [0, 1]
    assert [(record.key.retry, record.discarded, record.reason) for record in played.discarded] == [
        (2, "void", "it broke")
    ]
