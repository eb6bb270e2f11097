"""Why a vLLM engine did not start, or died, for a command's last line: vLLM's own words, and the setting that mends it.

What vLLM raises says "See root cause above": the cause is in what its processes printed. That is kept as a file.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

#: The environment variable that tells a run's processes its folder.
RUN_DIR = "SPIRAL_RUN_DIR"
#: Characters of vLLM's words that are shown.
_LONGEST = 500
#: An error of vLLM's that says only where the cause is.
_ELSEWHERE = re.compile(r"root cause|[Ss]ee stack trace")
#: How an engine's error begins that was running, and what its process writes before its last words, if it has any.
DIED, LAST_WORDS = "EngineCore encountered an issue", "EngineCore encountered a fatal error"
#: What vLLM's processes put before their lines.
_PREFIX = re.compile(r"^(?:\([^()]*pid=\d+\)\s*)*(?:ERROR \S+ \S+ \[[^\]]*\]\s?)?")
_ERROR = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): .*|(?:\w+\.)*OutOfMemoryError\b.*")
_ARGUMENTS = re.compile(r": error: (.+)")
_KILLED = re.compile(r"'[\w-]+': -(\d+)")
#: pydantic's frame around a reason.
_PYDANTIC = re.compile(r".* validation errors? for \w+\s+(?:\S+\s+)?Value error, (.*?) \[type=.*", re.DOTALL)


def engine_settings(section: str, **other: str) -> dict[str, str]:
    """The settings of an engine, by vLLM's names; ``arguments`` takes further ones of vLLM's."""
    names = ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "enforce_eager", "dtype")
    return {name: f"{section}.{name}" for name in names} | other


_ROLLOUT = "actor_rollout_ref.rollout"
POLICY = engine_settings(
    _ROLLOUT,
    arguments=f"{_ROLLOUT}.engine_kwargs.vllm",
    kv_cache_memory_bytes=f"{_ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes",
    model="actor_rollout_ref.model.path",
)
OPPONENTS = POLICY | {
    "gpu_memory_utilization": "opponent_engine.gpu_memory_utilization",
    "model": "actor_rollout_ref.model.path",
}
#: What mends a failure, by vLLM's words; the first that fits counts.
_MENDS = {
    "by SIGKILL": "often the machine's memory ran out: lower {kv_cache_memory_bytes} or {max_num_seqs}, or free memory",
    "is less than desired|is less than requested memory": "end what else uses the memory, or lower "
    "{gpu_memory_utilization} (on a CPU {kv_cache_memory_bytes})",
    "KV cache|cache blocks|serve even a single token": "raise {gpu_memory_utilization} (on a CPU "
    "{kv_cache_memory_bytes}), or lower {max_model_len}",
    "out of memory|OutOfMemory|not enough GPU memory|Mamba cache blocks": "lower {gpu_memory_utilization} or "
    "{max_num_seqs}, or take {enforce_eager}=true, which needs no CUDA graphs",
    "[Uu]nrecognized arguments|unexpected keyword argument": "take it out of {arguments}",
    "[Ss]afetensor|PytorchStreamReader|incomplete metadata": "the weights are damaged: copy {model} anew",
    "architectures|model type|config\\.json|Transformers does not recognize": "set {model} to a model that vLLM has",
    "[Cc]ompil|[Nn]inja|nvcc|ptxas|[Tt]riton|Inductor": "a kernel was not compiled: take {enforce_eager}=true, or mend "
    "the compiler",
    "max_model_len|max_num_batched_tokens": "change {max_model_len}",
    "dtype|bfloat16": "change {dtype}",
}


class EngineFailure(RuntimeError):
    """An engine does not start, does not answer, or cannot load what it should. The message says everything."""


def explain(error: BaseException, printed: str, settings: Mapping[str, str], log: Path | None) -> str:
    """The cause, what mends it, and where everything is.

    Args:
        error: what vLLM raised.
        printed: by its processes since the start.
        settings: the names of the engine's; or ``mend``, which mends whatever it is.
        log: the file with ``printed``.
    """
    cause = " ".join(cause_in(error, printed).split())
    cut = cause.rstrip(".") if len(cause) <= _LONGEST else f"{cause[:_LONGEST]}..."
    mends = (mend.format_map(settings) for words, mend in _MENDS.items() if re.search(words, cause))
    mend = settings.get("mend") or next(mends, "")
    return "; ".join(filter(None, [cut, mend, f"all that vLLM printed: {log}" if log else ""]))


def cause_in(error: BaseException, printed: str) -> str:
    """vLLM's own words: the error itself or, where it points elsewhere, the last error that one of its processes
    printed; SIGKILL leaves no word. Errors that an engine has survived are not why it died."""
    if isinstance(error, SystemExit):
        found = _ARGUMENTS.findall(printed)
    elif _ELSEWHERE.search(str(error)):
        spoke = not str(error).startswith(DIED) or LAST_WORDS in printed
        lines = (_PREFIX.sub("", line, count=1).strip() for line in (printed.splitlines() if spoke else ()))
        found = [line for line in lines if _ERROR.match(line) and not _ELSEWHERE.search(line)]
        if killed := _KILLED.search(str(error)):
            number = int(killed[1])
            known = number in {*signal.Signals}
            found.append(f"vLLM's process was killed by {signal.Signals(number).name if known else f'signal {number}'}")
        elif not found:  # vLLM may look before the system has told how the process ended
            found = ["vLLM's process ended without a word, as by SIGKILL"]
    else:
        found = []
    said = found[-1] if found else f"{type(error).__name__}: {error}"
    return _PYDANTIC.sub(r"\1", said)


class Printed:
    """What this process and those below it print into Ray's files for it, from now on."""

    def __init__(self) -> None:
        streams = [Path(os.path.realpath(f"/proc/self/fd/{number}")) for number in (1, 2)]
        self._starts = {file: file.stat().st_size for file in streams if file.is_file()}

    def read(self) -> str:
        parts = []
        for file, start in self._starts.items():
            with suppress(OSError):
                parts.append(file.read_bytes()[start:].decode(errors="replace"))
        return "\n".join(parts)


@contextmanager
def explained(what: str, settings: Mapping[str, str], printed: Printed, log: Path | None) -> Iterator[None]:
    """Ask for an engine in the block, in one of Ray's workers. Ray's files go with a run's Ray: where it fails, ``log``
    gets what was printed. EngineFailure: the block fails, or vLLM refuses its arguments, by which it would end the
    process."""
    try:
        yield
    except (Exception, SystemExit) as error:
        text = printed.read()
        with suppress(OSError):  # the disk may be full
            if log is not None:
                log.write_text(text, encoding="utf-8")
        raise EngineFailure(f"the {what}: {explain(error, text, settings, log)}") from error
