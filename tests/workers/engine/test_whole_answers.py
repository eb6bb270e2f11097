"""An answer that is wanted whole leaves the engine once, and as it would have been put together from its parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import RequestStatus

from recipe.spiral.workers.engine import vllm as server
from recipe.spiral.workers.engine.whole_answers import WholeAnswers, WholeAnswersAsync, scheduler, together

ONCE, EACH = RequestOutputKind.FINAL_ONLY, RequestOutputKind.CUMULATIVE


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, EngineCoreOutputs]]:
    """What vLLM's scheduler gives in its next steps."""
    left: list[dict[int, EngineCoreOutputs]] = []
    monkeypatch.setattr(Scheduler, "__init__", lambda self, **kwargs: self.__dict__.update(kwargs))
    monkeypatch.setattr(AsyncScheduler, "__init__", Scheduler.__init__)
    monkeypatch.setattr(Scheduler, "update_from_output", lambda self, *given: left.pop(0))
    monkeypatch.setattr(Scheduler, "finish_requests", lambda self, names, status: self.requests.pop(names) and [names])
    return left


def made(log_stats: bool = False, **requests: SamplingParams | None) -> Any:
    asked = {name: SimpleNamespace(sampling_params=sampling) for name, sampling in requests.items()}
    return WholeAnswers(requests=asked, log_stats=log_stats)


def sampling(kind: RequestOutputKind = ONCE, **settings: Any) -> SamplingParams:
    return SamplingParams(output_kind=kind, **settings)


def output(name: str, *tokens: int, ends: bool = False, **fields: Any) -> EngineCoreOutput:
    return EngineCoreOutput(name, list(tokens), finish_reason=FinishReason.LENGTH if ends else None, **fields)


def sent(scheduler: Any) -> dict[int, list[tuple[str, list[int]]]]:
    """The names and tokens of a step's outputs, by client."""
    of_clients = scheduler.update_from_output(None, None)
    return {client: [(o.request_id, o.new_token_ids) for o in each.outputs] for client, each in of_clients.items()}


def test_tokens_stay_until_the_last(steps: list[Any]) -> None:
    queue = made(a=sampling(), b=sampling(), c=sampling(EACH))
    for outputs in (
        [output("a", 1), output("b", 5), output("c", 7)],
        [output("a", 2), output("b", 6, ends=True)],
        [output("a", 3)],
        [output("a", 4, ends=True), output("c", 8, ends=True)],
    ):
        steps.append({0: EngineCoreOutputs(outputs=outputs)})
    assert sent(queue) == {0: [("c", [7])]}
    assert sent(queue) == {0: [("b", [5, 6])]}
    assert sent(queue) == {}, "nothing is sent that says nothing"
    assert sent(queue) == {0: [("a", [1, 2, 3, 4]), ("c", [8])]}
    assert not queue._kept


@pytest.mark.parametrize(
    ("asked", "log_stats"),
    [(sampling(EACH), False), (sampling(stop=["end"]), False), (sampling(), True), (None, False)],
)
def test_where_somebody_reads_each_token_each_is_sent(
    steps: list[Any], asked: SamplingParams | None, log_stats: bool
) -> None:
    """A stop word is looked for by the server; the first token's time is in its statistics."""
    steps.append({0: EngineCoreOutputs(outputs=[output("a", 1)])})
    assert sent(made(log_stats, a=asked)) == {0: [("a", [1])]}


def test_what_else_a_step_says_is_sent(steps: list[Any]) -> None:
    stats: Any = object()
    steps += [{0: EngineCoreOutputs(outputs=[output("a", 1)], finished_requests={"z"}), 1: EngineCoreOutputs()}]
    steps += [{0: EngineCoreOutputs(outputs=[output("a", 1)], scheduler_stats=stats)}]
    queue = made(a=sampling())
    assert queue.update_from_output(None, None)[0].finished_requests == {"z"}
    assert queue.update_from_output(None, None)[0].scheduler_stats is stats


def test_an_aborted_answer_leaves_nothing(steps: list[Any]) -> None:
    queue = made(a=sampling(), b=sampling())
    steps.append({0: EngineCoreOutputs(outputs=[output("a", 1), output("b", 2)])})
    sent(queue)
    assert queue.finish_requests("a", RequestStatus.FINISHED_ABORTED) == ["a"]
    assert set(queue._kept) == {"b"}


def test_an_answer_that_ends_in_an_error_has_its_tokens(steps: list[Any]) -> None:
    """vLLM ends it within the step whose output says so."""
    queue = made(a=sampling())
    steps.append({0: EngineCoreOutputs(outputs=[output("a", 1)])})
    sent(queue)
    queue.finish_requests("a", RequestStatus.FINISHED_ERROR)
    steps.append({0: EngineCoreOutputs(outputs=[output("a", ends=True)])})
    assert sent(queue) == {0: [("a", [1])]}


@given(parts=st.lists(st.integers(1, 3), min_size=1, max_size=6), logprobs=st.booleans())
def test_the_whole_is_its_parts_one_after_the_other(parts: list[int], logprobs: bool) -> None:
    tokens = np.arange(sum(parts))
    table = LogprobsLists(np.stack([tokens, -tokens], 1), np.stack([tokens / 8, tokens / 4], 1), tokens + 1)
    outputs, begin = [], 0
    for number, part in enumerate(parts):
        ends = number == len(parts) - 1
        own = table.slice_request(begin, part) if logprobs else None
        experts = tokens[begin : begin + part, None]
        first = {"prefill_stats": "of the prompt", "new_prompt_logprobs_tensors": "too"} if number == 0 else {}
        fields: Any = {"new_logprobs": own, "routed_experts": experts, **first}
        outputs.append(output("a", *tokens[begin : begin + part].tolist(), ends=ends, **fields))
        begin += part
    whole: Any = together(outputs)
    assert whole.new_token_ids == tokens.tolist() and whole.finish_reason == FinishReason.LENGTH
    assert (whole.prefill_stats, whole.new_prompt_logprobs_tensors) == ("of the prompt", "too")
    assert whole.routed_experts[:, 0].tolist() == tokens.tolist()
    if logprobs:
        for ours, its in zip(whole.new_logprobs[:3], table[:3], strict=True):
            assert np.array_equal(ours, its)
    else:
        assert whole.new_logprobs is None


@pytest.mark.parametrize(("asynchronous", "kind"), [(True, WholeAnswersAsync), (False, WholeAnswers)])
def test_it_is_the_scheduler_that_vllm_would_take(steps: list[Any], asynchronous: bool, kind: type) -> None:
    from vllm.config.scheduler import SchedulerConfig

    settings = SchedulerConfig.default_factory(async_scheduling=asynchronous)
    theirs = settings.get_scheduler_cls()
    settings.scheduler_cls = server.SCHEDULER
    assert settings.get_scheduler_cls() is scheduler
    made = scheduler(SimpleNamespace(scheduler_config=settings), requests={}, log_stats=False)
    assert type(made) is kind and isinstance(made, theirs)
    assert issubclass(WholeAnswersAsync, AsyncScheduler) and not issubclass(WholeAnswers, AsyncScheduler)
