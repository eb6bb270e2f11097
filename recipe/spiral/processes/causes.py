"""What ended a run, in a line for people; and what the process that it comes from said last."""

from __future__ import annotations

import re
from pathlib import Path

from .engine_failure import last_lines

#: In Ray's errors: the processes that they come through, the outermost first.
_PROCESS = re.compile(r"\bpid[=:] ?(\d+)")


def cause_of(error: BaseException, plain: tuple[type[Exception], ...] = ()) -> str:
    """What the trainer's error comes from: an actor that died, or the innermost error, without its class if it is one
    of ``plain``, whose messages say everything."""
    from ray.exceptions import RayActorError

    if isinstance(error, RayActorError):
        text = " ".join(str(error).split())
        name = re.search(r"\bname: (\S+)", text) or re.search(r"class_name: (\S+)", text)
        why = text.rpartition("The actor is dead because ")[2]
        return f"{name[1] if name else 'an actor'} died ({why[:160]})"
    cause = getattr(error, "cause", None) or error
    return str(cause) if isinstance(cause, plain) else f"{type(cause).__name__}: {cause}"


def said_last(error: BaseException, session: Path | None) -> str:
    """The last lines that the process wrote which an error of Ray's comes from; "": it wrote none, or nobody knows.

    Args:
        session: where the run's own Ray has its files; None: it is a cluster's.
    """
    pids = _PROCESS.findall(f"{error.__cause__ or ''} {error}")
    if not pids or session is None:
        return ""
    logs = sorted(session.glob(f"session_latest/logs/worker-*-{pids[-1]}.*"))
    text = last_lines("\n".join(log.read_text(errors="replace") for log in logs))
    return f"the last lines of process {pids[-1]}:\n{text}" if text else ""
