"""The policy at the table: what it asks the engine for, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recipe.spiral.games import make
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import PromptTooLong
from recipe.spiral.players.policy import Generation, PolicyPlayer
from recipe.spiral.players.prompts import History
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import Tokens
from recipe.spiral.players.seeds import GameKey

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


def test_the_engine_is_given_the_prompt_and_the_sampling() -> None:
    engine = Engine()
    record = self_play(engine)
    assert len(engine.calls) == len(record.turns)
    for (prompt_ids, sampling), turn in zip(engine.calls, record.turns, strict=True):
        assert prompt_ids == [ord(c) for c in turn.observation]
        assert {"temperature": 0.7, "top_p": 0.9, "seed": sampling["seed"]} == sampling


def test_the_prompt_is_made_of_the_observation_and_the_players_own_turns() -> None:
    made: list[tuple[str, History]] = []

    def encode(observation: str, history: History) -> list[int]:
        made.append((observation, history))
        return [0]

    player = replace(policy(Engine()), encode=encode)
    record = asyncio.run(play(KEY, "TicTacToe", make("TicTacToe", 0), [player, RandomPlayer()], (0,), Rules()))
    own = [(turn.observation, turn.action) for turn in record.turns_of(0)]
    assert len(own) > 1
    assert made == [(observation, tuple(own[:number])) for number, (observation, _) in enumerate(own)]


def test_every_turn_of_every_player_samples_with_its_own_seed() -> None:
    engine = Engine()
    for index in range(20):
        self_play(engine, GameKey("train", 3, 2, index))
    seeds = [sampling["seed"] for _, sampling in engine.calls]
    assert len(set(seeds)) == len(seeds) > 60


def test_the_same_key_is_the_same_game() -> None:
    assert self_play(Engine()).to_json() == self_play(Engine()).to_json()
    assert self_play(Engine()).turns != self_play(Engine(), GameKey("train", 4, 2, 5)).turns


def test_a_turn_keeps_what_was_read_and_written() -> None:
    record = self_play(Engine())
    for turn in record.turns:
        assert turn.tokens.prompt_ids == [ord(c) for c in turn.observation]
        assert "".join(map(chr, turn.tokens.response_ids)) == turn.response
        assert turn.tokens.log_probs == [-0.1] * len(turn.response)
        assert turn.tokens.weight_versions == (4, 5)
    assert record.players == ("policy", "policy")


def test_a_truncated_generation_is_a_truncated_turn() -> None:
    record = self_play(Engine(truncated=True))
    assert (record.turns[0].verdict, record.turns[0].truncated, len(record.turns)) == ("truncated", True, 1)


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


@pytest.mark.parametrize("style", ["state", "dialogue"])
def test_a_prompt_that_grows_too_long_ends_the_game_with_its_length(style: str) -> None:
    """One token a byte, as where a tokenizer does not know a script."""

    def encode(observation: str, history: History) -> list[int]:
        shown = history if style == "dialogue" else ()
        return list("".join([*(seen for seen, _ in shown), observation]).encode())

    async def says(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        text = f"\\boxed{{{'ไทย' * 100}}}"
        return Generation(Tokens(prompt_ids, [ord(c) for c in text], [-0.1] * len(text), (4, 5)), False)

    player = replace(policy(Engine(), 2048), generate=says, encode=encode)
    record = asyncio.run(play(KEY, "DontSayIt", make("DontSayIt", 0), [player, player], (0, 1), Rules()))
    assert (record.termination, record.rewards) == ("prompt_too_long", (-1.0, -1.0))
    assert "is longer than data.max_prompt_length=2048" in str(record.reason)
    assert 1 < len(record.turns) < (12 if style == "state" else 6)


def test_the_random_player_is_legal_and_repeats_itself() -> None:
    def game() -> Any:
        players = [RandomPlayer(), RandomPlayer()]
        return asyncio.run(play(KEY, "TicTacToe", make("TicTacToe", 0), players, (0, 1), Rules()))

    assert {turn.verdict for turn in game().turns} == {"legal"}
    assert game().to_json() == game().to_json()
    assert [turn.tokens for turn in game().turns] == [None] * len(game().turns)
