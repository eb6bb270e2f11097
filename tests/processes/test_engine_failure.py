"""The last line names why an engine did not start, or died, in vLLM's words, and the setting that mends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
from vllm.v1.engine.exceptions import EngineDeadError

from recipe.spiral.processes.causes import cause_of
from recipe.spiral.processes.engine_failure import (
    OPPONENTS,
    POLICY,
    EngineFailure,
    Printed,
    engine_settings,
    explain,
    explained,
)

EVALUATION = engine_settings("engine", arguments="engine.vllm", model="policies")


def core_failed(code: int = 1) -> RuntimeError:
    failed = {"EngineCore": code}
    return RuntimeError(f"Engine core initialization failed. See root cause above. Failed core proc(s): {failed}")


def printed(error: str, process: str = "EngineCore", named: str = "core.py:1349") -> str:
    """As vLLM prints it: by its logger, and by Python as the process ends."""
    head = f"({process} pid=4242) ERROR 11-26 14:50:32 [{named}] "
    trace = ["Traceback (most recent call last):", '  File "core.py", line 1317, in run_engine_core', error]
    logged = [head + line for line in (f"{process} failed to start.", *trace)]
    raised = [f"({process} pid=4242) {line}" for line in (f"Process {process}:", *trace)]
    return "\n".join(["(EngineCore pid=4242) INFO 11-26 14:50:30 [core.py:112] Initializing", *logged, *raised])


#: Real messages of vLLM 0.24's sources.
KV_CACHE = (
    "ValueError: To serve at least one request with the model's max seq len (4096), (0.44 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (0.25 GiB). Based on the available memory, the estimated "
    "maximum model length is 2304. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
    "backend) or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/ for more details."
)
NO_MEMORY = (
    "ValueError: Free memory on device cuda:0 (11.2/79.2 GiB) on startup is less than desired GPU memory utilization "
    "(0.6, 47.52 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
NO_GRAPHS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB"
)
NO_COMPILER = (
    "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment "
    "variable or set triton.knobs.build.impl."
)
DAMAGED = "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not covered"


@pytest.mark.parametrize(
    ("error", "settings", "mend"),
    [
        (KV_CACHE, POLICY, "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes), or lower"),
        (KV_CACHE, POLICY, "actor_rollout_ref.rollout.max_model_len"),
        (NO_MEMORY, POLICY, "end what else uses the memory, or lower actor_rollout_ref.rollout.gpu_memory_utilization"),
        (NO_MEMORY, OPPONENTS, "lower opponent_engine.gpu_memory_utilization"),
        (NO_MEMORY, EVALUATION, "lower engine.gpu_memory_utilization"),
        (NO_GRAPHS, POLICY, "actor_rollout_ref.rollout.enforce_eager=true"),
        (NO_GRAPHS, OPPONENTS, "actor_rollout_ref.rollout.enforce_eager=true"),
        (NO_COMPILER, EVALUATION, "engine.enforce_eager=true"),
        (DAMAGED, EVALUATION, "the weights are damaged: copy policies anew"),
    ],
)
def test_the_cause_is_what_the_engines_process_said(error: str, settings: dict[str, str], mend: str) -> None:
    line = explain(core_failed(), printed(error), settings, Path("run/engine.log"))
    assert line.startswith(error[:400].rstrip(".")) and mend in line and line.endswith("run/engine.log")
    assert "root cause" not in line and "pid=" not in line


def test_of_several_ranks_it_is_the_workers_error_and_not_the_engines() -> None:
    engines = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace"
    output = printed(NO_MEMORY, "Worker_TP1") + "\n" + printed(f"{engines} for root cause.")
    assert explain(core_failed(), output, POLICY, None).startswith(NO_MEMORY[:-1])


def test_a_killed_process_leaves_no_word() -> None:
    line = explain(core_failed(-9), "Loading weights\n", OPPONENTS, None)
    assert line.startswith("vLLM's process was killed by SIGKILL") and "kv_cache_memory_bytes" in line
    unknown = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    line = explain(unknown, "Loading weights\n", EVALUATION, None)
    assert "without a word, as by SIGKILL" in line and "lower engine.vllm.kv_cache_memory_bytes" in line
    assert "SIGSEGV" in explain(core_failed(-11), printed(NO_GRAPHS), OPPONENTS, None)


def test_an_engine_that_dies_at_work_says_why_and_not_what_it_had_survived() -> None:
    survived = printed("ValueError: an adapter that vLLM did not take")
    spoke = printed(NO_GRAPHS).replace("EngineCore failed to start", "EngineCore encountered a fatal error")
    line = explain(EngineDeadError(), f"{survived}\n{spoke}", OPPONENTS, Path("engine.log"))
    assert line.startswith(NO_GRAPHS) and "lower opponent_engine.gpu_memory_utilization" in line
    assert explain(EngineDeadError(), survived, EVALUATION, None).startswith(
        "vLLM's process ended without a word, as by SIGK"
    )


def test_what_vllm_refuses_itself_is_said_without_pydantics_frame() -> None:
    refused = ValueError(
        "1 validation error for ModelConfig\n  Value error, Model architectures ['NoSuch'] are not supported for now. "
        "Supported architectures: dict_keys(['AfmoeForCausalLM']) [type=value_error, input_value=ArgsKwargs((), {})]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
    )
    line = explain(refused, "", POLICY, None)
    assert line.startswith("Model architectures ['NoSuch'] are not supported for now")
    assert line.endswith("set actor_rollout_ref.model.path to a model that vLLM has")


def test_an_unknown_error_is_shown_with_the_file() -> None:
    assert explain(KeyError("x"), "", POLICY, Path("e.log")) == "KeyError: 'x'; all that vLLM printed: e.log"


def test_the_whole_output_is_kept_and_an_exit_is_a_failure(tmp_path: Path) -> None:
    """In a process whose output goes into files, as that of Ray's workers; what was there before is not its own."""
    code = (
        "import os, sys; from pathlib import Path; from recipe.spiral.processes.engine_failure import *\n"
        "os.write(2, b'ValueError: earlier\\n')\n"
        "try:\n"
        "    with explained('vLLM server did not start', POLICY, Printed(), Path(sys.argv[1])):\n"
        "        os.write(1, b'from stdout\\n')\n"
        "        os.write(2, b'usage: vllm serve\\nvllm serve: error: unrecognized arguments: --no_such_key 1\\n')\n"
        "        sys.exit(2)\n"
        "except EngineFailure as error:\n"
        "    Path(sys.argv[2]).write_text(str(error))\n"
    )
    log, told = tmp_path / "engine.log", tmp_path / "told.txt"
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        subprocess.run([sys.executable, "-c", code, log, told], stdout=out, stderr=err, check=True)
    assert told.read_text() == (
        "the vLLM server did not start: unrecognized arguments: --no_such_key 1; take it out of "
        f"actor_rollout_ref.rollout.engine_kwargs.vllm; all that vLLM printed: {log}"
    )
    assert "from stdout" in log.read_text() and "usage" in log.read_text() and "earlier" not in log.read_text()


def test_without_a_run_the_reason_is_said_all_the_same() -> None:
    said = "the vLLM server died: OSError: no such thing"
    with pytest.raises(EngineFailure, match=said), explained("vLLM server died", POLICY, Printed(), None):
        raise OSError("no such thing")


def test_it_travels_through_ray_and_is_the_last_line() -> None:
    from ray.exceptions import RayTaskError

    failure = EngineFailure("the vLLM server did not start: ...")
    error = RayTaskError("launch_server", "Traceback ...", failure).as_instanceof_cause()
    assert cause_of(error) == "the vLLM server did not start: ..."
