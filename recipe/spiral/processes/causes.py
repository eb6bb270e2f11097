"""What ended a run, in a line for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .engine_failure import EngineFailure
from .masking import without_secrets

if TYPE_CHECKING:
    from ray.exceptions import RayActorError

#: In a run's folder: what ended its trainer, until the next start.
CAUSE = "failure.txt"
#: What people call the actors that a run waits for, by the actor's class.
_WORKERS = {
    "AgentLoopWorkerTQ": "rollout worker",
    "FastServer": "vLLM server",
    "FastSlotServer": "opponent's vLLM server",
    "RolloutWorker": "rollout worker",
    "SlotServer": "opponent's vLLM server",
    "TaskRunner": "trainer",
    "VLLMServer": "vLLM server",
    "WorkerDict": "policy worker",
}

#: Of Ray's errors where it starts more slowly than it allows itself, its own or a cluster's.
_SLOW_RAY = re.compile("node (timed out during|to) startup")


def says_all(error: BaseException, plain: tuple[type[Exception], ...] = ()) -> bool:
    """Whether ``cause_of`` says all that there is to know, so that a traceback would only hide it."""
    return isinstance(error, plain) or _SLOW_RAY.search(str(error)) is not None


def cause_of(error: BaseException, plain: tuple[type[Exception], ...] = ()) -> str:
    """What the trainer's error comes from: a worker that died, or the innermost error.

    ``plain``: errors whose message says everything.
    """
    return str(without_secrets(_cause_of(error, plain)))


def _cause_of(error: BaseException, plain: tuple[type[Exception], ...]) -> str:
    from ray.exceptions import RayActorError

    if isinstance(error, RayActorError):
        name = re.search(r"class_name: (\S+)", str(error))
        actor = name.group(1).rsplit(".", 1)[-1] if name else ""
        worker = _WORKERS.get(actor, actor or "worker")
        return f"{death_of(worker, error)}; start the run again to go on from its last checkpoint"
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, (EngineFailure, *plain)):
        return str(cause)
    what = f"{type(cause).__name__}: {cause}"
    if _SLOW_RAY.search(what):
        return "Ray did not start within the 30 seconds that it allows itself; start again when less runs here"
    return what


def death_of(worker: str, error: RayActorError) -> str:
    """Who died, and the sentence of Ray's message that says why; of an actor that could not be made, its own error.
    Where a machine does not answer Ray any more, it ends the actors there, which did nothing wrong."""
    text = " ".join(str(error).split())
    if re.search("node has (died|crashed)", text):
        return f"Ray lost the machine of the {worker}: its raylet was ended or stopped, or had no time to answer"
    start = max(text.find("Worker exit type"), 0)
    why = text[start : start + 160].rsplit(". ", 1)[0]
    if "raised in its creation task" in text:
        why = str(error).strip().splitlines()[-1].strip()
    return f"the {worker} died ({why})"
