"""What the policy asks its engine for, and what it refuses. Random openings: legal, of all lengths, never the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from recipe.spiral.games import make
from recipe.spiral.match import Rules, play, random_opening
from recipe.spiral.players.player import Generation, PolicyPlayer, PromptTooLong, RandomPlayer
from recipe.spiral.players.records import Tokens
from recipe.spiral.players.seeds import GameKey
from tests.games.playouts import EVERY_GAME

KEY = GameKey("train", 3, 2, 5)


class Engine:
    """Answers at random, as the call's seed says, one token a character; keeps what it was asked."""

    def __init__(self, truncated: bool = False) -> None:
        self.calls: list[tuple[list[int], Mapping[str, Any]]] = []
        self.truncated = truncated

    async def __call__(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        self.calls.append((prompt_ids, sampling))
        answer = f"\\boxed{{[{sampling['seed'] % 9}]}}"
        return Generation(Tokens(prompt_ids, [ord(c) for c in answer], [-0.1] * len(answer), (4, 5)), self.truncated)


def policy(engine: Engine, prompt_length: int = 1000) -> PolicyPlayer:
    return PolicyPlayer(
        generate=engine,
        encode=lambda observation, history: [ord(c) for c in observation],
        decode=lambda ids: "".join(map(chr, ids)),
        sampling={"temperature": 0.7, "top_p": 0.9},
        prompt_length=prompt_length,
    )


def self_play(engine: Engine, key: GameKey = KEY) -> Any:
    player = policy(engine)
    return asyncio.run(play(key, "TicTacToe", make("TicTacToe", key.seed("game")), [player, player], (0, 1), Rules()))


def test_every_turn_of_every_player_samples_with_its_own_seed() -> None:
    engine = Engine()
    for index in range(20):
        self_play(engine, GameKey("train", 3, 2, index))
    seeds = [sampling["seed"] for _, sampling in engine.calls]
    assert len(set(seeds)) == len(seeds) > 60


def test_the_same_key_is_the_same_game() -> None:
    assert self_play(Engine()).to_json() == self_play(Engine()).to_json()
    assert self_play(Engine()).turns != self_play(Engine(), GameKey("train", 4, 2, 5)).turns


def test_a_prompt_that_just_fits_is_asked_and_a_longer_one_is_refused() -> None:
    game = make("TicTacToe", 0)
    length = len(game.observation(0))
    engine = Engine()
    asyncio.run(play(KEY, "TicTacToe", game, [policy(engine, length), RandomPlayer()], (0,), Rules(turn_cap=1)))
    assert len(engine.calls) == 1
    who = rf"a prompt of {length} tokens in game train-3-2-5-0 \(turn 0 of player 0\)"
    message = rf"{who} is longer than data\.max_prompt_length={length - 1}: raise it"
    with pytest.raises(PromptTooLong, match=message):
        asyncio.run(
            play(KEY, "TicTacToe", make("TicTacToe", 0), [policy(engine, length - 1), RandomPlayer()], (0,), Rules())
        )
    assert len(engine.calls) == 1, "the engine was asked with a prompt that is too long"


KEYS = [GameKey("train", 5, 1, index) for index in range(400)]


def test_each_number_of_moves_and_each_first_move_is_as_likely() -> None:
    openings = [random_opening(key, make("TicTacToe", key.game_seed()), 4) for key in KEYS]
    lengths = Counter(map(len, openings))
    assert lengths.keys() == {0, 1, 2, 3, 4} and min(lengths.values()) > 55
    first = Counter(moves[0] for moves in openings if moves)
    assert first.keys() == {f"[{square}]" for square in range(9)} and min(first.values()) > 20


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_a_game_goes_on_after_its_opening(game_id: str) -> None:
    for key in KEYS[:10]:
        game = make(game_id, key.game_seed())
        before = game.observation(game.current_player)
        moves = random_opening(key, game, 30)
        assert game.observation(game.current_player) == before
        assert moves == random_opening(key, make(game_id, key.game_seed()), 30)
        for move in moves:
            game.step(move)
        assert not game.is_terminal


def test_games_of_one_start_have_the_same_opening() -> None:
    group = [GameKey("train", 5, 1, index, group=8) for index in range(8, 16)]
    openings = {tuple(random_opening(key, make("TicTacToe", key.game_seed()), 4)) for key in group}
    assert openings == {tuple(random_opening(GameKey("train", 5, 1, 8), make("TicTacToe", 0), 4))}
