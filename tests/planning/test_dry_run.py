"""A dry run says what a run would be, and starts, asks and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_models import made_model

ROOT = Path(__file__).resolve().parents[2]
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


def dry(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HOME": str(folder / "hub"), "SPIRAL_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *overrides, "dry_run=true"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )


def test_a_preset_of_a_model_that_is_not_here(tmp_path: Path) -> None:
    done = dry(tmp_path, "+experiment=paper_llama_8b", "validation.benchmarks=[math500, gpqa]", "seed=7")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "dry run: outputs/spiral/paper_llama_8b; nothing is started, asked or written"
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
    assert not list(tmp_path.rglob("*.yaml")) and not (tmp_path / "outputs").exists()


def test_a_model_that_is_here_is_checked_and_a_run_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = made_model(tmp_path / "model", "Qwen/Qwen3-8B-Base")
    given = ("+experiment=paper_qwen3_8b", f"actor_rollout_ref.model.path={model}")
    done = dry(tmp_path, *given, "memory.device_gib=40")
    assert done.returncode == 2 and "outputs" not in os.listdir(tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("spiral: memory: ") and "; take " in last
    done = dry(tmp_path, *given, "data.max_prompt_length=300")
    assert done.returncode == 2 and "data.max_prompt_length=300: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("overrides", [["games=[Nope]"], ["trainer.device=gpuu", "games=[Nope]"]])
def test_what_would_be_refused_is_refused(tmp_path: Path, overrides: list[str]) -> None:
    done = dry(tmp_path, *overrides, "hardware=cpu")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("spiral: unknown game 'Nope'")


@pytest.mark.parametrize("entry", ["5", "nope", "{idd: math500}"])
def test_a_bad_benchmark_is_refused_in_a_line(tmp_path: Path, entry: str) -> None:
    done = dry(tmp_path, f"validation.benchmarks=[{entry}]", "hardware=cpu")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("spiral: validation.benchmarks.0")


def test_the_jobs_of_a_sweep_are_shown_one_by_one(tmp_path: Path) -> None:
    done = dry(tmp_path, "-m", "hardware=cpu", "seed=1,2")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("  seed")] == ["  seed: 1", "  seed: 2"]
    folders = [line.split(";")[0] for line in done.stdout.splitlines() if line.startswith("dry run: ")]
    assert [Path(folder).name for folder in folders] == ["seed=1", "seed=2"]
    assert os.listdir(tmp_path) == []


def test_keys_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a-secret-of-mine")
    done = dry(tmp_path, "hardware=cpu", "trainer.project_name=${oc.env:MY_API_KEY}")
    assert done.returncode == 0 and "a-secret-of-mine" not in done.stdout, done.stderr
