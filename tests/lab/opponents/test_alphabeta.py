"""The alpha-beta player of Connect Four: against plain minimax, against chance, and what it must not miss."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from recipe.spiral.games import make
from recipe.spiral.games.connect_four import COLUMNS, ConnectFour
from recipe.spiral.lab.opponents.alphabeta import AlphaBetaPlayer, best_actions, check_game
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Player
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match


def at_random(seed: int, moves: int, columns: int = COLUMNS) -> ConnectFour:
    """A position after some random moves in the first columns, none of which ends the game; after fewer if need be."""
    game, rng = ConnectFour(0), random.Random(seed)
    for _ in range(moves):
        actions = [action for action in game.legal_actions() if int(action[1]) < columns]
        for action in rng.sample(actions, len(actions)):
            branch = game.copy()
            branch.step(action)
            if not branch.is_terminal:
                game = branch
                break
    return game


def position(columns: str) -> ConnectFour:
    game = ConnectFour(0)
    for column in columns:
        game.step(f"[{column}]")
    return game


def open_lines(game: ConnectFour, player: int) -> int:
    """Lines of four that only this player has discs in: 1 for two discs, 5 for three."""
    cells = {(x, y): owner for x, discs in enumerate(game.columns) for y, owner in enumerate(discs)}
    total = 0
    for x, y, (dx, dy) in itertools.product(range(7), range(6), ((0, 1), (1, 0), (1, 1), (1, -1))):
        line = [(x + k * dx, y + k * dy) for k in range(4)]
        if all(0 <= a < 7 and 0 <= b < 6 for a, b in line):
            owners = [cells.get(cell) for cell in line]
            total += {2: 1, 3: 5}.get(owners.count(player), 0) * (1 - player not in owners)
    return total


def minimax(game: ConnectFour, depth: int) -> int:
    """The value for the player who is to move; a win that is one move away is seen at every depth."""
    player, discs = game.current_player, sum(map(len, game.columns))
    if not game.legal_actions():
        return 0
    branches = [game.copy() for _ in game.legal_actions()]
    for branch, action in zip(branches, game.legal_actions(), strict=True):
        branch.step(action)
    if any(branch.winner == player for branch in branches):
        return 10_000 - discs
    if depth == 0:
        return open_lines(game, player) - open_lines(game, 1 - player)
    return max(-minimax(branch, depth - 1) for branch in branches)


def by_minimax(game: ConnectFour, depth: int) -> set[str]:
    values = {}
    for action in game.legal_actions():
        branch = game.copy()
        branch.step(action)
        values[action] = 10_000 if branch.winner == game.current_player else -minimax(branch, depth - 1)
    return {action for action, value in values.items() if value == max(values.values())}


@pytest.mark.parametrize(("depth", "positions"), [(1, 30), (2, 8), (3, 2)])
def test_the_best_moves_are_those_of_plain_minimax(depth: int, positions: int) -> None:
    for seed in range(positions):
        game = at_random(seed, moves=5 * seed % 41)
        assert {*best_actions(game, depth)} == by_minimax(game, depth)


@pytest.mark.parametrize("depth", [5, 6])
def test_late_in_the_game_too(depth: int) -> None:
    """With three columns left the same positions come about in many ways; plain minimax looks at each of them."""
    late = [game for game in (at_random(seed, 24, columns=4) for seed in range(40)) if len(game.legal_actions()) == 3]
    assert len(late) >= 8
    for game in late[:6]:
        assert {*best_actions(game, depth)} == by_minimax(game, depth)


@pytest.mark.full
def test_the_best_moves_are_those_of_plain_minimax_in_many_positions() -> None:
    for seed in range(30):
        game = at_random(1000 + seed, moves=7 * seed % 41)
        assert {*best_actions(game, 4)} == by_minimax(game, 4)
    for seed in range(60):
        game = at_random(seed, 24, columns=4)
        assert {*best_actions(game, 5)} == by_minimax(game, 5)


@pytest.mark.parametrize("depth", [1, 4, 6])
def test_it_takes_a_win_and_stops_one(depth: int) -> None:
    found = {"win": 0, "block": 0}
    for seed in range(150):
        game = at_random(seed, moves=8 + seed % 20)
        wins = [columns for columns in game.legal_actions() if _wins(game, columns, game.current_player)]
        threats = [columns for columns in game.legal_actions() if _wins(game, columns, 1 - game.current_player)]
        if wins:
            found["win"] += 1
            assert {*best_actions(game, depth)} == {*wins}
        elif len(threats) == 1:
            found["block"] += 1
            assert {*best_actions(game, depth)} <= {*threats} or _loses_anyway(game, threats[0])
    assert min(found.values()) > 10


def _wins(game: ConnectFour, action: str, player: int) -> bool:
    branch = game.copy()
    column = int(action[1])
    branch.columns[column].append(player)
    return branch._connects(column, len(branch.columns[column]) - 1, player)


def _loses_anyway(game: ConnectFour, block: str) -> bool:
    branch = game.copy()
    branch.step(block)
    return any(_wins(branch, action, branch.current_player) for action in branch.legal_actions())


def test_it_sees_a_forced_win_within_its_depth() -> None:
    """Two in the middle of an empty bottom row: a third beside them threatens on both sides."""
    game = position("2233")  # X and O on columns 2 and 3; X to move
    assert {*best_actions(game, 3)} <= {"[1]", "[4]"}
    assert {*best_actions(position("22336"), 2)} <= {"[1]", "[4]"}, "and the other must stop it"


@pytest.mark.parametrize("seed", range(12))
def test_left_and_right_are_alike(seed: int) -> None:
    game, mirror = at_random(seed, 3 * seed), ConnectFour(0)
    mirror.columns = game.columns[::-1]
    mirrored = {f"[{COLUMNS - 1 - int(action[1])}]" for action in best_actions(mirror, 4)}
    assert mirrored == {*best_actions(game, 4)}


def against_chance(depth: int, role: int, games: int) -> list[GameRecord]:
    strong, weak = AlphaBetaPlayer(depth), RandomPlayer()
    seats: list[Player] = [strong, weak] if role == 0 else [weak, strong]
    keys = [GameKey("val", 9, 0, index) for index in range(games)]
    return [run_match(make("ConnectFour", key.game_seed()), seats, key=key) for key in keys]


@pytest.mark.parametrize("role", [0, 1])
def test_it_beats_chance_even_with_a_short_look(role: int) -> None:
    games = against_chance(2, role, 100)
    assert sum(game.result(role) == "win" for game in games) >= 95
    assert len({tuple(turn.action for turn in game.turns) for game in games}) > 90


@pytest.mark.full
@pytest.mark.parametrize("role", [0, 1])
def test_it_beats_chance(role: int) -> None:
    assert sum(game.result(role) == "win" for game in against_chance(6, role, 100)) >= 99


@pytest.mark.full
def test_looking_further_is_stronger() -> None:
    won = 0
    for index, role in itertools.product(range(20), (0, 1)):
        key = GameKey("val", 4, 0, index)
        seats = [AlphaBetaPlayer(6), AlphaBetaPlayer(2)]
        game = run_match(make("ConnectFour", 0), seats[:: 1 if role == 0 else -1], key=key)
        won += {"win": 2, "draw": 1, "loss": 0}[game.result(role)]
    assert won > 50, "of 80 half points"


def test_the_key_decides_the_game() -> None:
    assert [game.to_json() for game in against_chance(3, 0, 5)] == [game.to_json() for game in against_chance(3, 0, 5)]


def test_other_games_go_on_while_it_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is not in the event loop."""
    thinking = []

    def think(game: ConnectFour, depth: int) -> tuple[str, ...]:
        thinking.append(depth)
        time.sleep(0.05)
        return game.legal_actions()[:1]

    monkeypatch.setattr("recipe.spiral.lab.opponents.alphabeta.best_actions", think)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.002)
            ticks += 1

    async def game() -> None:
        ticking = asyncio.create_task(tick())
        seats = [AlphaBetaPlayer(), AlphaBetaPlayer()]
        key = GameKey("train", 1, 1, 0)
        await play(key, "ConnectFour", make("ConnectFour", 0), seats, (0,), Rules(turn_cap=4))
        ticking.cancel()

    asyncio.run(game())
    assert len(thinking) == 4
    assert ticks > 20


def test_its_name_says_that_it_is_not_perfect() -> None:
    assert AlphaBetaPlayer().name == "alphabeta-6"
    assert AlphaBetaPlayer(depth=3).name == "alphabeta-3"


def test_it_says_what_it_does_not_play() -> None:
    check_game("ConnectFour-v0")
    with pytest.raises(ValueError, match="Nim: the alpha-beta player knows ConnectFour only"):
        check_game("Nim")
    with pytest.raises(ValueError, match="Nim: the alpha-beta player knows ConnectFour only"):
        run_match(make("Nim", 0), [AlphaBetaPlayer(), AlphaBetaPlayer()])
    for depth in (0, 13, True, 2.5, "6"):
        with pytest.raises(ValueError, match="must be a whole number from 1 to 12"):
            AlphaBetaPlayer(depth)  # type: ignore[arg-type]
