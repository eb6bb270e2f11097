"""An engine that does not start, or dies: the last line has vLLM's reason and the setting that mends it, and a file has
all that vLLM printed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recipe.spiral.processes.launch import end_with_parent

from .conftest import ROOT, Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: Fewer bytes than a prompt of the model takes.
TOO_SMALL = 100_000


def last_line(module: str, *arguments: object, killed: str | None = None) -> str:
    """Of a command that fails; ``killed``: SIGKILL ends the first process below it that is called so."""
    command = [sys.executable, "-m", f"recipe.spiral.{module}", *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=end_with_parent
    )
    if killed is not None:
        threading.Thread(target=kill, args=(process.pid, killed), daemon=True).start()
    output, _ = process.communicate(timeout=600)
    assert process.returncode != 0, output
    return output.strip().splitlines()[-1]


def kill(parent: int, title: str) -> None:
    with suppress(psutil.NoSuchProcess):
        while True:
            for process in psutil.Process(parent).children(recursive=True):
                with suppress(psutil.Error):
                    if title in " ".join(process.cmdline()):
                        return process.kill()
            time.sleep(0.05)


@pytest.fixture
def too_wide(model: Path, tmp_path: Path) -> Path:
    """A model whose config is wider than its weights."""
    folder = Path(shutil.copytree(model, tmp_path / "too_wide"))
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] *= 2
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def unknown(model: Path, tmp_path: Path) -> Path:
    """A model of an architecture that nobody has."""
    folder = Path(shutil.copytree(model, tmp_path / "unknown"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["NoSuchForCausalLM"]}))
    return folder


@pytest.mark.parametrize(
    ("of", "override"),
    [("model", f"engine.vllm.kv_cache_memory_bytes={TOO_SMALL}"), ("unknown", "verbose=false")],
)
def test_an_evaluation_ends_with_one_line(
    of: str, override: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The cause is vLLM's to print, above."""
    path = request.getfixturevalue(of)
    line = last_line("main_eval", f"eval_dir={tmp_path}/eval", f"policies=[{{path: {path}, name: mine}}]", override)
    assert "vLLM does not start: " in line


@pytest.fixture
def failed(runs: list[Run], tmp_path: Path, model: Path) -> Iterator[object]:
    def start(*overrides: str) -> Run:
        run = Run(tmp_path / "run", *small(model, *overrides))
        runs.append(run)
        assert run.wait() == 1, run.output[-4000:]
        return run

    yield start


ROLLOUT = "actor_rollout_ref.rollout.engine_kwargs.vllm"


@pytest.mark.parametrize(
    ("overrides", "log", "said"),
    [
        ((f"{ROLLOUT}.kv_cache_memory_bytes={TOO_SMALL}",), "engine-0.0.log", f"the vLLM server .* {ROLLOUT}.kv_cache"),
        ((f"+{ROLLOUT}.no_such_key=1",), "engine-0.0.log", f"no.such.key.* take it out of {ROLLOUT};"),
    ],
)
def test_a_run(overrides: tuple[str, ...], log: str, said: str, failed: object) -> None:
    run = failed(*overrides)  # type: ignore[operator]
    assert re.search(said, run.last_line), run.last_line
    assert f"{run.run_dir}/{log}" in run.last_line and "root cause above" not in run.last_line
    words = "unrecognized arguments" if "no_such_key" in overrides[-1] else "KV cache is needed"
    assert words in (run.run_dir / log).read_text() and words in run.last_line


def test_a_run_whose_opponents_engine_is_killed(runs: list[Run], tmp_path: Path, model: Path) -> None:
    run = Run(
        tmp_path / "run", *small(model, "fsp.enabled=true", "fsp.update_interval=1", "fsp.size=2", "verbose=false")
    )
    runs.append(run)
    run.wait_for("^step *1/")
    # the policy's started first
    max((p for p in run.descendants() if "EngineCore" in " ".join(p.cmdline())), key=lambda p: p.create_time()).kill()
    assert run.wait(60) == 1
    line = r"the opponent's vLLM server died: .* SIGKILL.*opponent_engine\.kv_cache.*/engine-1000\.0\.log; start"
    assert re.search(line, run.last_line), run.last_line
    assert "EngineCore" in (run.run_dir / "engine-1000.0.log").read_text()
