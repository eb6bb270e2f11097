"""GRPO's baselines: a player is compared with the same player of the group's other games."""

from __future__ import annotations

from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.training.filters import Filters
from recipe.spiral.training.group_baselines import GroupBaselines
from tests.made import record, turn


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
