"""vLLM's scheduler, which keeps the tokens of an answer until it is whole, where nobody reads it before.

vLLM's engine sends each new token of each request to its server, where Python puts it to the others. Here the tokens of
a request that is to be answered once, at its end, stay in the engine until then, and travel together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request, RequestStatus


def scheduler(vllm_config: Any, **kwargs: Any) -> Scheduler:
    """What vLLM makes of its setting ``scheduler_cls``: the class that it would take itself, with whole answers."""
    made = WholeAnswersAsync if vllm_config.scheduler_config.async_scheduling else WholeAnswers
    return made(vllm_config=vllm_config, **kwargs)


class WholeAnswers(Scheduler):
    """Keeps outputs of requests of the kind ``FINAL_ONLY`` until they end. One that is aborted leaves nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[str, list[EngineCoreOutput]] = {}

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        of_clients = super().update_from_output(*args, **kwargs)
        for sent in of_clients.values():
            sent.outputs = [whole for output in sent.outputs if (whole := self._whole(output)) is not None]
        return {client: sent for client, sent in of_clients.items() if _says_something(sent)}

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> Any:
        finished = super().finish_requests(request_ids, finished_status)
        if finished_status == RequestStatus.FINISHED_ABORTED:
            self._kept = {name: kept for name, kept in self._kept.items() if name in self.requests}
        return finished

    def _whole(self, output: EngineCoreOutput) -> EngineCoreOutput | None:
        """What is sent of an output: nothing, as long as the request goes on and its answer waits."""
        name = output.request_id
        if output.finish_reason is not None:
            return together([*self._kept.pop(name, ()), output])
        if name not in self._kept and not self._waits(self.requests[name]):
            return output
        self._kept.setdefault(name, []).append(output)
        return None

    def _waits(self, request: Request) -> bool:
        """Whether a server reads nothing of the answer before its end: it looks for words that end an answer, and the
        times of tokens are in its statistics."""
        sampling = request.sampling_params
        once = sampling is not None and sampling.output_kind == RequestOutputKind.FINAL_ONLY
        return once and not sampling.stop and not self.log_stats


class WholeAnswersAsync(WholeAnswers, AsyncScheduler):
    """The same for engines that schedule a step while they compute the one before."""


def together(outputs: Sequence[EngineCoreOutput]) -> EngineCoreOutput:
    """The outputs of one request, of the first step to the last, as if all of it had been made in the last."""
    first, last = outputs[0], outputs[-1]
    if len(outputs) > 1:
        last.new_token_ids = [token for output in outputs for token in output.new_token_ids]
        last.new_logprobs = _logprobs([output.new_logprobs for output in outputs if output.new_logprobs is not None])
        last.new_prompt_logprobs_tensors, last.prefill_stats = first.new_prompt_logprobs_tensors, first.prefill_stats
        experts = [output.routed_experts for output in outputs if output.routed_experts is not None]
        last.routed_experts = np.concatenate(experts) if experts else None
    return last


def _logprobs(parts: Sequence[LogprobsLists]) -> LogprobsLists | None:
    if not parts:
        return None
    tokens, values, ranks, _ = zip(*parts, strict=True)
    return LogprobsLists(np.concatenate(tokens), np.concatenate(values), np.concatenate(ranks), None)


def _says_something(sent: EngineCoreOutputs) -> bool:
    return bool(sent.outputs or sent.finished_requests or sent.scheduler_stats is not None)
