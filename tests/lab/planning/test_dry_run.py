"""A dry run says what a run would be, and starts, asks and writes nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest

from recipe.spiral import main_spiral
from tests.made_configs import CONFIG
from tests.made_models import made_model

Dry = Callable[..., CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[3]
#: Runs the entry point without a network, and tells what it should not have touched.
PROGRAM = """
import socket
import sys

def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")

socket.create_connection = socket.socket.connect = refuse
from recipe.spiral.main_spiral import main

try:
    main()
finally:
    torch = sys.modules.get("torch")
    touched = [name for name in ("ray", "vllm", "verl") if name in sys.modules]
    print("touched", touched, torch is not None and torch.cuda.is_initialized())
"""


def environment(folder: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return others | {"HF_HOME": str(folder / "hub"), "SPIRAL_CACHE": str(folder / "cache")}


def refuse(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("the network was asked")


@pytest.fixture
def dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dry:
    """Runs the command in this process, which has imported torch and transformers once; without a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    def run(*overrides: str) -> CompletedProcess[str]:
        command = ["main_spiral", *overrides, "dry_run=true"]
        surroundings = patch.dict(os.environ, environment(tmp_path), clear=True), patch.object(sys, "argv", command)
        with surroundings[0], surroundings[1], pytest.raises(SystemExit) as ended:
            main_spiral.compose()
        return CompletedProcess(command, ended.value.code or 0, *capsys.readouterr())

    return run


@pytest.mark.e2e
def test_a_preset_of_a_model_that_is_not_here(tmp_path: Path) -> None:
    """In a process of its own: what is imported there, and that the hub's package is told to stay offline."""
    overrides = ("+experiment=paper_llama_8b", "validation.benchmarks=[math500, gpqa]", "seed=7", "dry_run=true")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *overrides],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONPATH": str(ROOT)},
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == f"dry run: {tmp_path}/outputs/spiral/paper_llama_8b; nothing is started, asked or trained"
    assert lines[1] == "settings that differ from the defaults of hardware=gpu, model=hf, task=games, loss=clipped"
    assert {"  seed: 7", "  prompt.template: llama_instruct", "  rules.turn_cap: 50"} <= set(lines)
    assert "memory, in GiB, of each GPU (79.6, taken for a card of 80 GB as there is none here); estimated" in lines
    told = lines[lines.index("to be downloaded, where it is not in the cache") + 1 :]
    assert told[:3] == [
        "  meta-llama/Llama-3.1-8B-Instruct: about 15 GiB, after its terms were accepted on the hub",
        "  benchmark math500: HuggingFaceH4/MATH-500, 500 questions",
        "  benchmark gpqa: Idavidrein/gpqa, 198 questions, after its terms were accepted there",
    ]
    assert told[3].startswith("not checked here: the lengths of prompts")
    assert lines[-1] == "touched [] False"


def test_a_model_that_is_here_is_checked_and_a_run_that_does_not_fit_is_refused(tmp_path: Path, dry: Dry) -> None:
    model = made_model(tmp_path / "model", "Qwen/Qwen3-8B-Base")
    given = ("+experiment=paper_qwen3_8b", f"actor_rollout_ref.model.path={model}")
    done = dry(*given, "memory.device_gib=40")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("spiral: memory: ") and "; take " in last
    done = dry(*given, "data.max_prompt_length=300")
    assert done.returncode == 2 and "data.max_prompt_length=300: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("entry", ["5", "nope", "{idd: math500}"])
def test_a_bad_benchmark_is_refused_in_a_line(dry: Dry, entry: str) -> None:
    done = dry(f"validation.benchmarks=[{entry}]", "hardware=cpu", "model=tiny")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("spiral: validation.benchmarks.0")


def test_a_folder_may_have_a_number_for_its_name_and_opponents_of_the_hub_are_named(dry: Dry) -> None:
    done = dry(
        "run_dir=2026", "hardware=cpu", "model=tiny", "fsp.enabled=true", "fsp.initial=[base, {path: some/model}]"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "/2026; " in done.stdout and "\n  some/model, an opponent\n" in done.stdout


def test_what_only_a_start_looks_at_is_named(tmp_path: Path, dry: Dry, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(
        "from recipe.spiral import extensions\nclass Extension(extensions.Extension): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    done = dry("hardware=cpu", "extensions=[recipe.spiral.lab.extension,my_models]", "embedded_model=mine")
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert all(what in last for what in ("verl itself refuses", "trackers", "questions", "your own extensions"))
    assert "  mine: made or unpacked on the machine of the run" in done.stdout


#: Of the recipe, of a user, and of the experiments.
PRESETS = [
    *(f"+experiment={file.stem}" for file in sorted((CONFIG / "experiment").glob("*.yaml"))),
    *(f"+experiment={file.stem}" for file in sorted((ROOT / "config/experiment").glob("*.yaml"))),
]


#: One for each way to be planned: here or on GPUs, with a pool, asynchronouslywith questions. All
#: others are composed and checked by ``tests/test_presets.py``.
PLANNED = [
    *(f"+experiment={name}" for name in ("kuhn", "paper_pool", "paper_async", "spin_arithmetic")),
]


@pytest.mark.parametrize(
    "preset", [pytest.param(preset, marks=() if preset in PLANNED else pytest.mark.full) for preset in PRESETS]
)
def test_whatever_is_shipped_is_planned(dry: Dry, preset: str) -> None:
    """Questions are in files that a user has; all others can be started as they are."""
    done = dry("--config-dir", str(ROOT / "config"), *preset.split())
    questions = preset.startswith("+experiment=spin")
    assert done.returncode == (2 if questions else 0), done.stderr
    assert not questions or "data.train_files" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr
