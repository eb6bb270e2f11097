"""vLLM under verl, with the socket that new weights go through named after the run.

verl names it after the Ray job, so that runs on one machine keep apart. But runs with a Ray of their own are all job 1
of it, and would send their weights to each other's engines. Ray's address is added here, in the process that sends and
in the one that listens.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter


def run_name() -> str:
    """The Ray job with the port of its cluster: one name for each run on a machine."""
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.gcs_address.rsplit(':', 1)[-1]}"


class VLLMServer(vLLMHttpServer):  # type: ignore[misc]
    """Listens, in the engine's processes, which inherit this one's environment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.environ["VERL_RAY_JOB_ID"] = run_name()


class VLLMReplica(vLLMReplica):  # type: ignore[misc]
    """An engine with our server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(VLLMServer)


class VLLMAdapter(ServerAdapter):  # type: ignore[misc]
    """Sends, from the policy's workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        job = ray.get_runtime_context().get_job_id()
        self.zmq_handle = self.zmq_handle.replace(f"-{job}-", f"-{run_name()}-")
