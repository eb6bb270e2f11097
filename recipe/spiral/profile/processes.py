"""What people call the processes of a run, by their command lines."""

from __future__ import annotations

import re

#: The first pattern that is found in the command line counts.
NAMES = (
    (r"ray::TaskRunner", "trainer"),
    (r"ray::\w*WorkerDict", "policy worker"),
    (r"ray::(VLLMServer|vLLMHttpServer)", "vLLM server"),
    (r"ray::SlotServer", "opponent's vLLM server"),
    (r"EngineCore", "vLLM's engine"),
    (r"ray::(RolloutWorker|AgentLoopWorkerTQ)", "rollout worker"),
    (r"ray::GlobalRequestLoadBalancer", "load balancer"),
    (r"ray::(SimpleStorageUnit|TransferQueueController)", "TransferQueue"),
    (r"ray::IDLE|default_worker|setup_worker", "Ray: idle worker"),
    (r"ray::", "Ray: other actors"),
    (r"/raylet ", "Ray: raylet"),
    (r"gcs_server", "Ray: GCS"),
    (r"log_monitor", "Ray: log monitor"),
    (r"runtime_env", "Ray: environments"),
    (r"dashboard", "Ray: dashboard"),
    (r"main_spiral", "driver"),
    (r"models\.registry", "vLLM's look at the model"),
    (r"resource_tracker", "Python's resource tracker"),
)


def name_of(command_line: str) -> str:
    """A process's name for people: that of its program, where it is none of a run's."""
    known = (name for pattern, name in NAMES if re.search(pattern, command_line))
    return next(known, None) or command_line.split(" ")[0].rsplit("/", 1)[-1]
