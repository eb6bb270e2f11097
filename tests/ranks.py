"""Ranks of a test, forked from one process that has imported what they need: that takes 7 s, and a rank at most 1 s.

As a script this file is that process. The first test of a session that needs ranks starts it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
#: Of the process that imports, and so of all ranks.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "recipe.spiral.workers.platforms.cpu",
}
#: What ranks import, and then share.
IMPORTED = (
    "peft",
    "pytest",
    "recipe.spiral.main_spiral",
    "recipe.spiral.workers.policy_worker",
    "transformers.models.qwen3.modeling_qwen3",
    "verl.utils.checkpoint.fsdp_checkpoint_manager",
    "verl.workers.engine.fsdp",
)


def run_ranks(
    function: Callable[..., None], folder: Path, *arguments: str, ranks: int = 2, limit: int = 200, **environment: str
) -> None:
    """Call a module's ``function(rank, folder, *arguments)`` in a process for each rank.

    What they print goes into files of the folder.

    Raises:
        AssertionError: a rank failed, and the others were ended, or not all were done in ``limit`` seconds; less than
            a test may take, so that no answer is left for the next test.
    """
    request = {
        "module": function.__module__,
        "name": function.__name__,
        "arguments": [str(folder), *arguments],
        "ranks": ranks,
        "limit": limit,
        "environment": environment,
    }
    if (starter := _starter()).process.poll() is not None:  # a test of ``clean_run`` ends all that its process started
        _starter.cache_clear()
        starter = _starter()
    assert starter.process.stdin is not None and starter.process.stdout is not None
    with suppress(BrokenPipeError):  # it has ended, and so gives no answer
        starter.process.stdin.write(json.dumps(request) + "\n")
        starter.process.stdin.flush()
    answer = starter.process.stdout.readline()
    assert answer, starter.errors()
    if (statuses := json.loads(answer)) != [0] * ranks:
        printed = [_output(folder, rank).read_text(errors="replace")[-3000:] for rank in range(ranks)]
        raise AssertionError("\n".join([f"exit statuses {statuses}", *printed]))


def _output(folder: Path, rank: int) -> Path:
    return folder / f"output_{rank}.txt"


class _Starter:
    def __init__(self) -> None:
        from recipe.spiral.processes.launch import end_with_parent

        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],  # -P: what lies beside this file is found as part of `tests` only
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            preexec_fn=end_with_parent,
        )

    def errors(self) -> str:
        self._errors.seek(0)
        return f"the process that starts ranks has ended:\n{self._errors.read()[-3000:]}"


@cache
def _starter() -> _Starter:
    """Of this session; it ends when its input does."""
    starter = _Starter()
    atexit.register(starter.process.communicate)
    return starter


# -- in that process ---------------------------------------------------------------------------------------------------


def start_ranks() -> None:
    """Answer each request with the exit status of its ranks; a negative one is a signal."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed is no answer
    _import()
    for line in sys.stdin:
        print(json.dumps(_group(**json.loads(line))), file=answers, flush=True)


def _import() -> None:
    tests = types.ModuleType("tests")  # another package of this name may be installed
    tests.__path__ = [str(ROOT / "tests")]
    sys.modules["tests"] = tests

    for module in IMPORTED:
        importlib.import_module(module)
    from transformers import AutoModelForImageTextToText

    AutoModelForImageTextToText._model_mapping.keys()  # imports all of these; verl looks there for each model's class
    sys.stdout.flush()  # or each rank would print it
    gc.collect()
    gc.freeze()  # a collection in a rank would copy the memory that it shares


def _group(ranks: int, limit: int, **task: Any) -> list[int]:
    running = {_fork(rank, ranks, **task): rank for rank in range(ranks)}
    statuses = [-signal.SIGKILL] * ranks

    def end(*_: Any) -> None:
        for process in running:
            os.kill(process, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.alarm(limit)
    while running:
        process, status = os.wait()
        if process not in running:
            continue
        rank = running.pop(process)
        statuses[rank] = os.waitstatus_to_exitcode(status)
        if statuses[rank]:  # the others would wait for it
            end()
    signal.alarm(0)
    return statuses


def _fork(
    rank: int, ranks: int, module: str, name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        from recipe.spiral.processes.launch import end_with_parent

        end_with_parent()
        folder, *more = arguments
        output = os.open(_output(Path(folder), rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(ranks))
        getattr(importlib.import_module(module), name)(rank, Path(folder), *more)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    start_ranks()
