"""The question rollout: one answer under the row's own sampling, and its errors reach the trainer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.lab.evaluation.benchmarks.answers import Reply
from recipe.spiral.lab.evaluation.benchmarks.question_loop import QuestionAgentLoop
from recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks import Entry, ValidationBenchmarks
from recipe.spiral.lab.graders.question import Question
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.channel import GameFailed, GameLost
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.fake_queue import FakeQueue
from tests.test_rollout import EOS, RESPONSE_LENGTH, Engine, Tokenizer

QUESTION = Question("math500", "a", "math", "Half of one?", "\\frac{1}{2}")
#: What verl gives the games of a validation.
GAMES_SAMPLING = {"temperature": 0, "top_p": 1.0, "top_k": 7, "repetition_penalty": 1.0, "logprobs": True}


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    return FakeQueue.install(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> str:
    end_tokens.cache_clear()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS]}))
    return str(tmp_path)


def row(entry: Entry | None = None, number: int = 0, question: Question = QUESTION) -> dict[str, Any]:
    asking = ValidationBenchmarks([], 5)
    asking.asked = [(entry or Entry(id="math500"), question, number)]
    (made,) = asking.rows([])
    return {**made, "uid": "u", "session_id": 0, "global_steps": 4}


def ask(engine: Engine, model: str, given: dict[str, Any], template: str = "chat", prompt_length: int = 2000) -> Any:
    """As verl's worker does: the loop with the attributes that verl's constructor sets."""
    loop = object.__new__(QuestionAgentLoop)
    loop.config = OmegaConf.create(
        {"prompt": {"template": template, "style": "state"}, "actor_rollout_ref": {"model": {"path": model}}}
    )
    loop.rollout_config = OmegaConf.create({"prompt_length": prompt_length, "response_length": RESPONSE_LENGTH})
    loop.server_manager, loop.tokenizer, loop.apply_chat_template_kwargs = engine, Tokenizer(), {}
    columns = {name: value for name, value in given.items() if name not in ("__rollout_n__", "agent_name")}
    return asyncio.run(loop.run(GAMES_SAMPLING, **columns))


def answers(*given: dict[str, Any]) -> list[Reply]:
    taken = game_channel.take_answers(GameKey(**one["key"]) for one in given)
    return [Reply(**answer) for answer in taken.values()]


class Prompts(Engine):
    """Keeps the prompts."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.prompt = "".join(map(chr, prompt_ids))
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)


def test_an_answer_reaches_the_trainer_and_leaves_no_rows(model: str) -> None:
    given = row()
    assert ask(Engine(lambda seed: "\\boxed{0.5}"), model, given) == []
    assert answers(given) == [Reply("\\boxed{0.5}", len("\\boxed{0.5}") + 1, False)]
    with pytest.raises(
        GameLost, match="1 of 1 questions were launched and never reported, the first: question-5-0-0-0"
    ):
        answers(given)


def test_it_is_sampled_as_its_row_says_whatever_the_games_are(model: str) -> None:
    engine = Engine(lambda seed: "\\boxed{1}")
    given = row(Entry(id="math500", temperature=0.7, top_p=0.9, max_tokens=12), number=3)
    ask(engine, model, given)
    ask(engine, model, row())
    own, papers = engine.calls
    assert (own["temperature"], own["top_p"], own["top_k"], own["max_tokens"]) == (0.7, 0.9, -1, 12)
    assert own["seed"] == given["sampling"]["seed"]
    assert (papers["temperature"], papers["top_p"], papers["max_tokens"]) == (0.6, 0.95, RESPONSE_LENGTH)
    assert own["logprobs"] is False


@pytest.mark.parametrize(("max_tokens", "truncated"), [(4, True), (None, False), (99, False)])
def test_an_answer_is_cut_off_at_its_own_limit(model: str, max_tokens: int | None, truncated: bool) -> None:
    """And never goes beyond verl's."""
    given = row(Entry(id="math500", max_tokens=max_tokens))
    ask(Engine(lambda seed: "\\boxed{7}"), model, given)
    (reply,) = answers(given)
    assert (reply.truncated, reply.tokens) == ((True, 4) if truncated else (False, 10))


@pytest.mark.parametrize(
    ("config", "own", "prompt"),
    [
        ("chat", None, "Half of one?\nPlease reason step by step"),
        ("chat", "qwen3", "Question: Half of one?\nPlease reason"),
        ("r1", None, "Below is a conversation"),
        ("qwen3_think", None, "Question: Half of one?"),
    ],
)
def test_a_question_is_put_as_its_template_says(model: str, config: str, own: str | None, prompt: str) -> None:
    engine = Prompts(lambda seed: "\\boxed{1}")
    ask(engine, model, row(Entry(id="math500", template=own)), template=config)
    assert engine.prompt.startswith(prompt)
    assert engine.prompt.endswith("<think>\n") == (config == "qwen3_think")


def test_an_answer_that_cannot_be_encoded_is_an_error_with_its_cause(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reply_to(*parts: Any) -> Reply:
        return Reply("", object(), False)  # type: ignore[arg-type]

    given = row()
    monkeypatch.setattr("recipe.spiral.lab.evaluation.benchmarks.question_loop.reply_to", reply_to)
    with pytest.raises(TypeError):
        ask(Engine(), model, given)
    with pytest.raises(GameFailed, match=r"^question question-5-0-0-0 of benchmark/math500 failed: TypeError: "):
        game_channel.raise_failures([GameKey(**given["key"])])


def test_an_error_reaches_verl_and_the_trainer(model: str) -> None:
    given = row()
    with pytest.raises(ConnectionError):
        ask(Engine(lambda seed: ConnectionError("the engine is gone")), model, given)
    said = r"^question question-5-0-0-0 of benchmark/math500 failed: ConnectionError: the engine is gone$"
    with pytest.raises(GameFailed, match=said):
        game_channel.raise_failures([GameKey(**given["key"])])
    with pytest.raises(GameFailed, match=said):
        answers(given)


def test_a_prompt_that_is_too_long_is_refused_and_not_cut(model: str) -> None:
    given = row()
    with pytest.raises(ValueError, match="more than the 5 that prompts may have"):
        ask(Engine(), model, given, prompt_length=5)
    with pytest.raises(GameFailed, match="PromptTooLong"):
        answers(given)
