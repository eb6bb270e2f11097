"""RAE under verl: found by its name, called by verl's own functions, and what becomes of it in verl's loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.training.credit import RAE, Filters, GroupBaselines
from tests.fake_queue import rows_of
from tests.made import record, turn

#: Two turns of player 0 (won, b = 0.25), one of player 1 (lost, b = -0.5), one row of padding.
GAME = record(0, rewards=(1.0, -1.0), turns=[turn(0, 0), turn(1, 0), turn(0, 1)])
KEYS, OUTCOMES = ["u0_0_0", "u0_0_1", "u0_1_0", "pad_0_0"], [1.0, 1.0, -1.0, 0.0]
MASK = [[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]]


def estimate_with(monkeypatch: pytest.MonkeyPatch, gamma: float = 1.0) -> None:
    baselines = RoleBaselines()
    baselines.load_state_dict({"values": [["TicTacToe", 0, "self", 0.25], ["TicTacToe", 1, "self", -0.5]]})
    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, RAE, rows_of([GAME]).estimator(KEYS, baselines, gamma))


def batch() -> DataProto:
    """Rewards as verl lays them: the outcome on a turn's last token."""
    mask = torch.tensor(MASK)
    rewards = torch.zeros(mask.shape)
    for row, outcome in enumerate(OUTCOMES):
        if mask[row].any():
            rewards[row, int(mask[row].sum()) - 1] = outcome
    return DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask},
        non_tensors={"uid": np.array(["a", "a", "a", "pad"], dtype=object)},
    )


def test_verl_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of ``algorithm.adv_estimator``."""
    estimate_with(monkeypatch)
    expected = [[0.75, 0.75, 0.0], [0.75, 0.0, 0.0], [-0.5, -0.5, -0.5], [0.0, 0.0, 0.0]]
    direct = compute_advantage(batch(), adv_estimator="rae", config={})
    trajectories = compute_advantage_for_multi_trajectories(batch(), batch_keys=KEYS, adv_estimator="rae", config={})
    for data in (direct, trajectories):
        assert data.batch["advantages"].tolist() == expected
        assert data.batch["returns"].tolist() == [[1, 1, 0], [1, 0, 0], [-1, -1, -1], [0, 0, 0]]


def test_shaping_in_the_reward_is_added_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KL penalty of 0.1 a token: neither baselined nor discounted, on real rows only."""
    data = batch()
    data.batch["token_level_rewards"] -= 0.1 * data.batch["response_mask"]
    estimate_with(monkeypatch, gamma=0.5)
    compute_advantage(data, adv_estimator=RAE, config={})
    expected = torch.tensor([[0.175, 0.175, 0], [0.65, 0, 0], [-0.8, -0.8, -0.8], [0, 0, 0]])
    torch.testing.assert_close(data.batch["advantages"], expected)


# -- GRPO --------------------------------------------------------------------------------------------------------------


def in_group(index: int, group: int, rewards: tuple[float, float], trainable: tuple[int, ...] = (0, 1)) -> GameRecord:
    played = record(index, rewards=rewards, trainable=trainable)
    played.key = GameKey("train", 7, 1, index, group=group)
    return played


def test_groups_compare_a_role_with_itself() -> None:
    """Four games from one state: player 0 won three. Were both players one group, its mean would always be 0."""
    games = [in_group(i, 0, (1.0, -1.0) if i < 3 else (-1.0, 1.0)) for i in range(4)]
    groups = GroupBaselines(games)
    assert {groups.of(game) for game in games} == {(0.5, -0.5)}
    other = in_group(4, 4, (-1.0, 1.0))
    assert GroupBaselines([*games, other]).of(other) == (-1.0, 1.0), "another start is another group"
    assert GroupBaselines([*games, other]).of(games[0]) == (0.5, -0.5)


def test_frozen_opponents_have_no_baseline() -> None:
    game = in_group(0, 0, (1.0, -1.0), trainable=(1,))
    assert GroupBaselines([game]).of(game) == (None, -1.0)


def test_equal_games_say_nothing_whatever_their_mean_is_rounded_to() -> None:
    """The mean of thirteen times -1.3 is not -1.3."""
    games = [in_group(index, 0, (-1.3, 0.7)) for index in range(13)]
    groups, filters = GroupBaselines(games), Filters(zero_advantages=True)
    compared = groups.of(games[0])
    assert compared[0] != -1.3
    assert {filters.reason(games[0], turn(player, 0), compared[player]) for player in (0, 1)} == {"zero_advantage"}
