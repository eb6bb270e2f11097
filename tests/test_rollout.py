"""The game rollout: each session is a player, a game is played once, and its errors reach everybody."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop import agent_loop
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral import rollout
from recipe.spiral.games import make
from recipe.spiral.match import random_opening
from recipe.spiral.players.player import PlayerFailure
from recipe.spiral.players.records import Turn
from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollout import GameAgentLoop
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.channel import GameFailed
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.rollouts.schedule import GameShare, training_row, validation_rows
from recipe.spiral.running import write_agent_loops
from recipe.spiral.spin.branching import BranchingLoop
from tests.fake_queue import FakeQueue

EOS = 0
RESPONSE_LENGTH = 24


class Tokenizer:
    """One token a character; token 0 ends a response."""

    eos_token_id = EOS

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(c) for c in text]

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        return self.encode("|".join(message["content"] for message in conversation))

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(token) for token in ids if token != EOS)


class Engine:
    """In verl's client's place: answers with a square drawn by the call's seed, after pauses of different lengths."""

    def __init__(self, answer: Callable[[int], str | Exception] | None = None) -> None:
        self.answer = answer or (lambda seed: f"\\boxed{{[{seed % 9}]}}")
        self.calls: list[Mapping[str, Any]] = []
        self.at_once = self.most_at_once = 0

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.calls.append({"request_id": request_id, **sampling_params})
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(random.random() * 0.002)
        self.at_once -= 1
        answer = self.answer(sampling_params["seed"])
        if isinstance(answer, Exception):
            raise answer
        ids = [ord(c) for c in answer][: sampling_params["max_tokens"]]
        if len(ids) < sampling_params["max_tokens"]:
            ids.append(EOS)
        steps = {"min_global_steps": 2, "max_global_steps": 3}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=steps)


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    return FakeQueue.install(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> str:
    end_tokens.cache_clear()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, ord("#")]}))
    return str(tmp_path)


def session(
    engine: Engine,
    model: str,
    draws: dict[str, Any] | None = None,
    branching: tuple[int, int] = (0, 3),
    opening: int = 0,
) -> GameAgentLoop:
    """An agent loop, with the attributes that verl's constructor sets.

    Args:
        branching: states and continuations.
        opening: the most random moves of TicTacToe.
    """
    loop = object.__new__(BranchingLoop if branching[0] else GameAgentLoop)
    loop.config = OmegaConf.create(
        {
            "rules": {"illegal_rewards": [-1.5, 0.5], "truncated": "illegal", "turn_cap": None},
            "prompt": {"template": "chat", "style": "state"},
            "opponents": [],
            "run_dir": None,
            "games": [{"id": "TicTacToe", "random_opening": opening}],
            "branching": dict(zip(("states", "continuations"), branching, strict=True)),
            "draw_retry": {"enabled": False, "max_retries": 5, **(draws or {})},
            "actor_rollout_ref": {"model": {"path": model}, "rollout": {"agent": {}}},
        }
    )
    loop.rollout_config = OmegaConf.create({"prompt_length": 2000, "response_length": RESPONSE_LENGTH})
    loop.server_manager, loop.tokenizer, loop.apply_chat_template_kwargs = engine, Tokenizer(), {}
    return loop


def self_play(index: int) -> dict[str, Any]:
    return {**training_row([GameShare("TicTacToe")], 5, 1000, index), "uid": f"uid{index}"}


def register_loops(config: Any, folder: Path) -> None:
    """Let verl's workers find the agent loops of a config, as a run does; their file goes into the folder."""
    write_agent_loops(config, folder)
    for entry in OmegaConf.load(folder / "agent_loops.yaml"):
        agent_loop._agent_loop_registry[entry.name] = entry


async def sessions(row: dict[str, Any], engine: Engine, model: str, *settings: Any) -> list[Any]:
    """All sessions of a row, as verl's worker runs them; ``settings`` as of ``session``."""
    sampling = {"temperature": 1.0, "logprobs": True}
    runs = [
        session(engine, model, *settings).run(
            sampling, session_id=i, **{k: v for k, v in row.items() if k != "__rollout_n__"}
        )
        for i in range(row["__rollout_n__"])
    ]
    return await asyncio.gather(*runs, return_exceptions=True)


def keys(*rows: dict[str, Any]) -> list[GameKey]:
    return [GameKey(**row["key"]) for row in rows]


def said(turns: Iterable[Turn]) -> list[list[int]]:
    return [turn.tokens.response_ids for turn in turns if turn.tokens is not None]


def test_session_p_returns_the_turns_of_player_p(model: str) -> None:
    row = self_play(0)
    outputs = asyncio.run(sessions(row, Engine(), model))
    (record,) = game_channel.take(keys(row)).records
    for player in (0, 1):
        turns = record.turns_of(player)
        assert {output.reward_score for output in outputs[player]} <= {record.rewards[player]}
        for output, turn in zip(outputs[player], turns, strict=True):
            assert output.response_ids == turn.tokens.response_ids
            assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    assert rollout._tables == {}


def test_only_a_game_that_is_trained_begins_with_random_moves(model: str) -> None:
    """They are nobody's turns, and after a draw there are others."""
    draws = {"enabled": True, "max_retries": 1}
    rows = [self_play(index) for index in range(12)]
    for row in rows:
        outputs = asyncio.run(sessions(row, Engine(), model, draws, (0, 3), 4))
        taken = game_channel.take(keys(row))
        (record,) = taken.records
        for played in (record, *taken.discarded):
            assert played.past == random_opening(played.key, make("TicTacToe", 0), 4)
        assert sum(map(len, outputs)) == len(record.turns)
        first, taken_before = record.turns[0], len(record.past)
        assert (first.player, first.turn) == (taken_before % 2, taken_before // 2)
    validation = validation_rows([("random", [GameShare("TicTacToe", random_opening=4)])], 5, 4)
    for index, row in enumerate(validation):
        asyncio.run(sessions({**row, "uid": f"val{index}"}, Engine(), model, {}, (0, 3), 4))
    assert not any(record.past for record in game_channel.take(keys(*validation)).records)


def test_two_hundred_games_run_side_by_side_and_keep_apart(model: str) -> None:
    rows = [self_play(index) for index in range(200)]
    engine = Engine()

    async def all_games() -> list[list[Any]]:
        return await asyncio.gather(*(sessions(row, engine, model) for row in rows))

    outputs = asyncio.run(all_games())
    assert engine.most_at_once == 200
    together = game_channel.take(keys(*rows)).records
    for record, players in zip(together, outputs, strict=True):
        for player, turns in enumerate(players):
            assert [output.response_ids for output in turns] == said(record.turns_of(player))
    alone = []
    for row in rows[:20]:
        asyncio.run(sessions(row, Engine(), model))
        alone += game_channel.take(keys(row)).records
    assert [record.to_json() for record in together[:20]] == [record.to_json() for record in alone]
    assert rollout._tables == {}


@pytest.mark.parametrize("role", [0, 1])
def test_against_an_opponent_session_0_is_the_learner(model: str, role: int) -> None:
    row = {**validation_rows([("random", [GameShare("TicTacToe")])], 5, 1)[role], "uid": "u"}
    engine = Engine()
    (rows,) = asyncio.run(sessions(row, engine, model))
    (record,) = game_channel.take(keys(row)).records
    assert [output.response_ids for output in rows] == said(record.turns_of(role))
    assert record.players[1 - role] == "random"
    assert len(engine.calls) == len(rows) == len(record.turns_of(role)), "a frozen opponent's turns are no rows"
    assert {output.reward_score for output in rows} == {record.rewards[role]}


def test_an_error_reaches_every_session_and_the_trainer(model: str) -> None:
    row = self_play(7)
    outputs = asyncio.run(sessions(row, Engine(lambda seed: ConnectionError("the engine is gone")), model))
    assert [type(output) for output in outputs] == [ConnectionError, ConnectionError]
    with pytest.raises(
        GameFailed, match=r"game train-5-1-7-0 of TicTacToe failed: ConnectionError: the engine is gone"
    ):
        game_channel.raise_failures(keys(row))
    with pytest.raises(GameFailed):
        game_channel.take(keys(row))
    assert rollout._tables == {}


def test_a_session_that_is_cancelled_leaves_the_game_to_the_other(model: str) -> None:
    row = self_play(1)

    async def run() -> list[Any]:
        plain = {k: v for k, v in row.items() if k != "__rollout_n__"}
        first, second = (asyncio.create_task(session(Engine(), model).run({}, session_id=i, **plain)) for i in (0, 1))
        await asyncio.sleep(0)
        first.cancel()
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    (record,) = game_channel.take(keys(row)).records
    assert [output.response_ids for output in second] == said(record.turns_of(1))


def test_a_void_game_is_played_again_under_another_key(model: str) -> None:
    row, failures = self_play(3), iter([PlayerFailure("down")])
    outputs = asyncio.run(sessions(row, Engine(lambda seed: next(failures, "nothing")), model))
    played = game_channel.take(keys(row))
    assert [(game.key.retry, game.discarded, game.reason) for game in played.discarded] == [(0, "void", "down")]
    assert [record.key.retry for record in played.records] == [1]
    assert [output.response_ids for output in outputs[0]] == said(played.records[0].turns_of(0))


def test_a_game_that_stays_void_is_given_up_and_known(model: str) -> None:
    row, other = self_play(3), self_play(4)
    outputs = asyncio.run(sessions(row, Engine(lambda seed: PlayerFailure("down")), model))
    assert outputs == [[], []], "no rows, and no win or loss for anybody"
    asyncio.run(sessions(other, Engine(), model))
    played = game_channel.take(keys(row, other))
    played.check_any(1)
    with pytest.raises(GameFailed, match=r"in step 1 all games were void, the first against self: down"):
        replace(played, records=[]).check_any(1)
    graded = [replace(game, opponent="grader", reason="question 3: time-out") for game in played.discarded]
    with pytest.raises(GameFailed, match=r"the first against grader: question 3: time-out"):
        replace(played, records=[], discarded=graded).check_any(1)
    assert [record.key.index for record in played.records] == [4]
    assert [game.discarded for game in played.discarded] == ["void"] * (1 + rollout.MAX_VOIDS)


# -- opponents ---------------------------------------------------------------------------------------------------------


class Table(Engine):
    """The policy answers with a square drawn by the seed; the member of the pool always with the same."""

    answered_by: str | None = None

    async def generate_as(self, name: str, slot: int | None, **request: Any) -> TokenOutput:
        self.asked = (name, slot)
        output = await Engine(lambda seed: "\\boxed{[4]}").generate(**request)
        output.extra_fields = {"answered_by": self.answered_by or name}
        return output


def against(seat: Seat, index: int = 0) -> dict[str, Any]:
    return {**self_play(index), **seat.columns()}


@pytest.mark.parametrize("role", [0, 1])
def test_a_member_of_the_pool_is_in_its_own_turns_and_nowhere_else(model: str, role: int) -> None:
    engine, row = Table(), against(Seat(Opponent("pool", "step_000005"), (role,), True, 2))
    (rows,) = asyncio.run(sessions(row, engine, model))
    (record,) = game_channel.take(keys(row)).records
    assert engine.asked == ("step_000005", 2)
    assert (record.opponent, record.players[1 - role], record.players[role]) == ("pool", "step_000005", "policy")
    for turn in record.turns:
        assert turn.tokens is not None
        learner = turn.player == role
        assert (turn.tokens.answered_by, turn.tokens.weight_versions) == (
            (None, (2, 3)) if learner else ("step_000005", None)
        )
        assert learner or turn.action == "[4]"
    assert [output.response_ids for output in rows] == said(record.turns_of(role))


# -- draws -------------------------------------------------------------------------------------------------------------


class Drawn(Table):
    """Plays nine moves that end TicTacToe in a draw, ``draws`` times; then player 0 wins."""

    def __init__(self, draws: int) -> None:
        super().__init__()
        self.moves = iter([0, 1, 2, 4, 3, 5, 7, 6, 8] * draws + [0, 3, 1, 4, 2])

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.answer = lambda seed: f"\\boxed{{[{next(self.moves)}]}}"
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)

    async def generate_as(self, name: str, slot: int | None, **request: Any) -> TokenOutput:
        output = await self.generate(**request)
        output.extra_fields = {"answered_by": name}
        return output


def test_a_draw_is_played_again_until_it_is_none(model: str) -> None:
    row, engine = self_play(0), Drawn(2)
    asyncio.run(sessions(row, engine, model, {"enabled": True}))
    played = game_channel.take(keys(row))
    assert [(game.key.retry, game.discarded, game.result(0)) for game in played.discarded] == [
        (0, "draw", "draw"),
        (1, "draw", "draw"),
    ]
    (record,) = played.records
    assert (record.key.retry, record.rewards) == (2, (1.0, -1.0))
    seeds = {call["seed"] for call in engine.calls}
    assert len(seeds) == len(engine.calls), "a retry samples with seeds of its own"


def validation() -> dict[str, Any]:
    row = validation_rows([("step_000005", [GameShare("TicTacToe")])], 5, 1)[0]
    return {**row, **Seat(Opponent("pool", "step_000005"), (0,), True, 0).columns(), "uid": "v"}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("x" * RESPONSE_LENGTH, "truncated"),
        ("x" * (RESPONSE_LENGTH - 1), "no_answer"),  # the end token is the last that fits
        ("x" * (RESPONSE_LENGTH - 1) + "#", "no_answer"),  # another end token of the model's
        ("x" * 99, "truncated"),
    ],
)
def test_a_response_is_cut_off_if_no_end_token_ends_it(model: str, answer: str, verdict: str) -> None:
    row = self_play(0)
    asyncio.run(sessions(row, Engine(lambda seed: answer), model))
    (record,) = game_channel.take(keys(row)).records
    assert record.turns[0].verdict == verdict
    assert record.turns[0].truncated == (verdict == "truncated")


def test_games_that_are_launched_one_by_one_are_played_by_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int]] = []

    def worker(name: str) -> Any:
        return SimpleNamespace(generate_sequences=SimpleNamespace(remote=lambda rows: given.append((name, len(rows)))))

    monkeypatch.setattr("verl.trainer.ppo.v1.agent_loop_tq.ray.get", list)
    manager = object.__new__(rollout.GameManager)
    manager.agent_loop_workers, manager.on_launch = [worker("a"), worker("b")], lambda batch: None
    for rows in (1, 1, 2, 1):
        manager.generate_sequences(TensorDict({"index": torch.arange(rows)}, batch_size=rows))
    assert given == [("a", 1), ("b", 1), ("a", 1), ("b", 1), ("a", 1)]


def test_a_row_plays_all_games_from_its_start(model: str) -> None:
    """Each with a session for each player, and the row's key counted on."""
    row = {**training_row([GameShare("KuhnPoker")], 5, 10, 3, games_per_start=2), "uid": "uid"}
    outputs = asyncio.run(sessions(row, Engine(), model))
    first = GameKey(**row["key"])
    played = [replace(first, index=first.index + number) for number in (0, 1)]
    records = game_channel.take(played).records
    assert [record.key for record in records] == played and records[0].key.game_seed() == records[1].key.game_seed()
    for session_id, rows in enumerate(outputs):
        turns = records[session_id // 2].turns_of(session_id % 2)
        assert [output.response_ids for output in rows] == said(turns)
